"""Join two models into one by connecting the first's outputs to the second's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.onnx_model.scopes import all_nodes
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.dimensions import sizes_of, substituted, symbols_in
from opbridge.surgery.edited import (
    Change,
    Edited,
    finished,
    fresh_name,
    model_of,
    names_of_values,
    rename_value,
    values_of,
)
from opbridge.surgery.shapes import infer_again

__all__ = ["join"]


def join(first: Any, second: Any, mapping: Mapping[str, str] | None = None) -> Edited:
    """Connect outputs of one model to inputs of another.

    The inputs of the result are the first model's inputs and the unconnected inputs of the second. Its outputs are the
    unconnected outputs of the first model and the outputs of the second. Names that both models use are numbered in the
    second.

    Args:
        first: The first model, as a path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        second: The second model, in the same forms.
        mapping: The inputs of the second model, by output of the first; by default equal names are connected.

    Raises:
        InputError: An output or input does not exist, their types or opsets differ, or nothing is connected.
    """
    one, two = model_of(first), model_of(second)
    _check_opsets(one, two)
    outputs = {str(value.name): value for value in one.graph.outputs}
    inputs = {str(value.name): value for value in two.graph.inputs}
    pairs = dict(mapping) if mapping is not None else {name: name for name in outputs if name in inputs}
    _check_pairs(pairs, outputs, inputs)
    connected = [(outputs[source], inputs[target]) for source, target in pairs.items()]
    _align_dimensions(one, two, connected)
    changes = [Change("connected", tuple(f"{source} → {target}" for source, target in pairs.items()))]
    renamed = _resolve_names(one, two, {value for _, value in connected})
    if renamed:
        changes.append(Change("renamed in the second", tuple(f"{old} → {new}" for old, new in renamed.items())))
    _add_functions(one, two)
    kept = [value for value in one.graph.outputs if value not in {source for source, _ in connected}]
    ends = list(two.graph.outputs)
    own_inputs = [value for value in two.graph.inputs if value not in {target for _, target in connected}]
    for source, target in connected:
        target.replace_all_uses_with(source, replace_graph_outputs=True)
        # The default value of a connected input is no longer used.
        two.graph.initializers.pop(str(target.name), None)
    ends = [next((source for source, target in connected if target is value), value) for value in ends]
    _move(one.graph, two.graph, own_inputs)
    one.graph.outputs.clear()
    one.graph.outputs.extend([*kept, *(value for value in dict.fromkeys(ends) if value not in kept)])
    one.ir_version = max(one.ir_version, two.ir_version)
    infer_again(one)
    return finished(first, one, changes)


def _check_opsets(one: ir.Model, two: ir.Model) -> None:
    for domain, version in two.opset_imports.items():
        own = one.opset_imports.setdefault(domain, version)
        if own != version:
            raise InputError(
                f"The first model is at opset {own} of {domain or 'ai.onnx'}, the second at {version}.",
                fix=f"convert one of them to the other's opset: opbridge.convert_opset(model, {max(own, version)}).",
            )


def _check_pairs(pairs: Mapping[str, str], outputs: Mapping[str, ir.Value], inputs: Mapping[str, ir.Value]) -> None:
    if not pairs:
        raise InputError(
            f"Nothing is connected: the first model gives {', '.join(map(repr, outputs))}, the second takes "
            f"{', '.join(map(repr, inputs))}.",
            fix="say which output goes to which input: mapping={'output': 'input'} (--map output=input).",
        )
    if len(set(pairs.values())) < len(pairs):
        raise InputError("Two outputs are mapped to one input.", fix="map each input once.")
    for source, target in pairs.items():
        if source not in outputs:
            raise InputError(f"The first model has no output {source!r}.", fix=did_you_mean(source, outputs))
        if target not in inputs:
            raise InputError(f"The second model has no input {target!r}.", fix=did_you_mean(target, inputs))
        given, taken = outputs[source], inputs[target]
        if given.dtype is not None and taken.dtype is not None and given.dtype != taken.dtype:
            raise InputError(
                f"{source!r} is {_name(given)}, and {target!r} takes {_name(taken)}.",
                fix="insert a Cast first: opbridge.surgery.insert(model, 'Cast', ...).",
            )
        _check_sizes(source, target, given, taken)


def _check_sizes(source: str, target: str, given: ir.Value, taken: ir.Value) -> None:
    one, other = sizes_of(given), sizes_of(taken)
    if one is None or other is None:
        return
    differing = any(a != b for a, b in zip(one, other, strict=False) if isinstance(a, int) and isinstance(b, int))
    if len(one) != len(other) or differing:
        raise InputError(
            f"{source!r} has the shape {list(one)}, and {target!r} takes {list(other)}.",
            fix="connect values of one shape, or insert a Reshape between them first.",
        )


def _name(value: ir.Value) -> str:
    return value.dtype.name.lower() if value.dtype is not None else "of an unknown type"


def _align_dimensions(one: ir.Model, two: ir.Model, connected: list[tuple[ir.Value, ir.Value]]) -> None:
    """Give connected dimensions of the second model the first's names; rename others whose names would clash."""
    new: dict[str, Any] = {}
    for given, taken in connected:
        for size, name in zip(sizes_of(given) or (), sizes_of(taken) or (), strict=False):
            if isinstance(name, str) and name.isidentifier() and size is not None:
                new.setdefault(name, size)
    taken_names = {name for value in values_of(one) for size in sizes_of(value) or () for name in symbols_in(size)}
    own = {name for value in values_of(two) for size in sizes_of(value) or () for name in symbols_in(size)}
    for name in sorted(own & taken_names):
        new.setdefault(name, fresh_name(name, taken_names))
    for value in values_of(two):
        sizes = sizes_of(value)
        if sizes and any(isinstance(size, str) for size in sizes):
            value.shape = ir.Shape([substituted(size, new) for size in sizes])


def _resolve_names(one: ir.Model, two: ir.Model, connected: set[ir.Value]) -> dict[str, str]:
    """Rename values and nodes of the second model whose names the first model uses."""
    taken, nodes = names_of_values(one), {node.name for node in one.graph.all_nodes() if node.name}
    taken_by_both = taken | names_of_values(two)
    renamed = {}
    for value in list(dict.fromkeys([*two.graph.inputs, *two.graph.initializers.values(), *values_of(two)])):
        if value.name in taken and value not in connected:
            old = value.name
            rename_value(value, fresh_name(old, taken_by_both))
            renamed[old] = value.name
    for node in two.graph.all_nodes():
        if node.name:
            node.name = fresh_name(node.name, nodes)
    return renamed


def _add_functions(one: ir.Model, two: ir.Model) -> None:
    new: dict[Any, str] = {}
    for key, function in list(two.functions.items()):
        own = one.functions.get(key)
        same = own is not None and ir.to_proto(own).SerializeToString() == ir.to_proto(function).SerializeToString()
        if own is not None and not same:
            new[key] = fresh_name(key[1], {name for _, name, _ in (*one.functions, *two.functions)})
            function.name = new[key]
        one.functions.setdefault(function.identifier(), function)
    for node in all_nodes(two):
        if node.op_identifier() in new:
            node.op_type = new[node.op_identifier()]


def _move(target: ir.Graph, source: ir.Graph, inputs: list[ir.Value]) -> None:
    nodes, initializers = list(source), list(source.initializers.values())
    source.outputs.clear()
    source.inputs.clear()
    source.initializers.clear()
    source.remove(nodes)
    target.inputs.extend(inputs)
    for value in initializers:
        target.register_initializer(value)
    target.extend(nodes)
