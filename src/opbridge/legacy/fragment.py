"""The part of an ONNX model that a symbolic function builds, and its insertion into the whole model.

While torch.onnx.export runs, each call of a symbolic function is one placeholder node, which neither the optimizer nor
the version converter changes. Afterwards, the nodes of the fragment replace the placeholder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from opbridge.engines.versions import SYMBOLIC
from opbridge.errors import TranslationError
from opbridge.onnx_model.scopes import all_nodes

__all__ = ["PLACEHOLDER_DOMAIN", "Fragment", "Slot", "TensorInput", "restore_inputs", "return_inputs", "splice"]

PLACEHOLDER_DOMAIN = "opbridge.legacy"


@dataclasses.dataclass(frozen=True)
class TensorInput:
    """The known facts about an ONNX value that is passed to a symbolic function.

    Attributes:
        dtype: The element type; None if it is unknown.
        shape: The sizes, with None for a dynamic dimension; None if the rank is unknown.
        constant: The contents (a ``torch.Tensor``) if the old exporter would have known them.
    """

    dtype: ir.DataType | None
    shape: tuple[int | None, ...] | None
    constant: Any = None


@dataclasses.dataclass(frozen=True)
class Slot:
    """A placeholder for the ``index``-th ONNX value among the arguments of a symbolic function."""

    index: int


@dataclasses.dataclass(frozen=True)
class Fragment:
    """The nodes that a call of a symbolic function added.

    Attributes:
        model: The nodes as a model. Its graph has one input per ONNX value of the call, in order, and its outputs are
            the values that the symbolic function returned.
        results: The position among the outputs of each value that the symbolic function returned; None for None.
        several: Whether the symbolic function returned a list or tuple rather than one value.
        name: The name of the operator or autograd.Function, for messages.
        remarks: What the model keeps although ONNX does not have it.
    """

    model: ir.Model
    results: tuple[int | None, ...]
    several: bool
    name: str = ""
    remarks: tuple[str, ...] = ()

    def value(self, position: int) -> ir.Value | None:
        """Return the value that the symbolic function returned at ``position``."""
        index = self.results[position]
        return None if index is None else self.model.graph.outputs[index]


def restore_inputs(model: ir.Model, names: Sequence[str], copies: Mapping[str, int]) -> None:
    """Give the model one input per ONNX value of the call, in order.

    Args:
        model: The model, which is changed in place.
        names: The names of the inputs.
        copies: The positions of the inputs with known contents, by the name of the constant that represented each one.
            The input replaces this constant if a node still uses it.
    """
    kept = {value.name: value for value in model.graph.inputs}
    model.graph.inputs[:] = [kept.get(name) or ir.Value(name=name) for name in names]
    for node in list(model.graph):
        made = node.outputs[0] if node.op_type == "Constant" else None
        if made is not None and made.name in copies:
            replacement = model.graph.inputs[copies[made.name]]
            ir.convenience.replace_all_uses_with(made, replacement, replace_graph_outputs=True)
            model.graph.remove(node, safe=True)


def return_inputs(model: ir.Model, returned: Mapping[int, int]) -> None:
    """Remove the Identity nodes that torch adds for inputs that a symbolic function returns.

    Args:
        model: The model, which is changed in place.
        returned: The position of the input, by its position among the outputs.
    """
    for position, index in returned.items():
        copy = model.graph.outputs[position]
        node = copy.producer()
        model.graph.outputs[position] = model.graph.inputs[index]
        if node is not None and not copy.uses() and not copy.is_graph_output():
            model.graph.remove(node, safe=True)


def splice(model: ir.Model, fragments: Mapping[int, Fragment]) -> list[int]:
    """Replace the placeholder nodes by their fragments, and remove nodes that only the placeholders used.

    Args:
        model: The model, which is changed in place.
        fragments: The fragments, by the attribute ``fragment`` of their placeholders. The inputs of the graph of a
            fragment and the values that it returned correspond to the inputs and outputs of the placeholder, in order.

    Returns:
        The numbers of the fragments that are in the model: torch removes a placeholder whose results nothing uses.

    Raises:
        TranslationError: The model uses a value for which the symbolic function returned None.
    """
    if not fragments:
        return []
    placeholders = [node for node in all_nodes(model) if node.domain == PLACEHOLDER_DOMAIN]
    numbers = [node.attributes["fragment"].as_int() for node in placeholders]
    for node, number in zip(placeholders, numbers, strict=True):
        _replace(node, fragments[number])
    model.opset_imports.pop(PLACEHOLDER_DOMAIN, None)
    for fragment in fragments.values():
        for domain, version in fragment.model.opset_imports.items():
            if domain:
                model.opset_imports[domain] = version
        for identifier, function in fragment.model.functions.items():
            model.functions.setdefault(identifier, function)
    common_passes.RemoveUnusedNodesPass()(model)
    return numbers


def _replace(placeholder: ir.Node, fragment: Fragment) -> None:
    """Replace ``placeholder`` by the nodes of a copy of ``fragment``."""
    owner = placeholder.graph
    assert owner is not None
    graph = fragment.model.clone().graph
    prefix = placeholder.name or "symbolic"
    constants = _initializers_as_nodes(graph)
    nodes = [*constants, *graph]
    for position, node in enumerate(nodes):
        node.name = f"{prefix}/{node.op_type}_{position}"
    for node in [*constants, *graph.all_nodes()]:
        node.metadata_props.update(placeholder.metadata_props)
        node.metadata_props.setdefault(SYMBOLIC, "")
        for value in node.outputs:
            if value.name is None or value.name.isdigit():
                value.name = f"{placeholder.outputs[0].name}/{node.op_type}_{value.name or 0}"
    results = list(graph.outputs)
    graph.outputs.clear()
    for inner, outer in zip(graph.inputs, placeholder.inputs, strict=True):
        assert outer is not None
        ir.convenience.replace_all_uses_with(inner, outer)
        results = [outer if value is inner else value for value in results]
    graph.remove(list(graph))
    owner.insert_before(placeholder, nodes)
    _connect(placeholder, [None if index is None else results[index] for index in fragment.results], fragment.name)
    owner.remove(placeholder, safe=True)


def _initializers_as_nodes(graph: ir.Graph) -> list[ir.Node]:
    """Replace each initializer by a Constant node, because functions have no initializers."""
    constants: list[ir.Node] = []
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        assert tensor is not None
        constant = ir.node("Constant", [], attributes={"value": tensor})
        made = constant.outputs[0]
        made.name, made.shape, made.type = value.name, value.shape, value.type
        ir.convenience.replace_all_uses_with(value, made)
        graph.outputs[:] = [made if output is value else output for output in graph.outputs]
        constants.append(constant)
    graph.initializers.clear()
    return constants


def _connect(placeholder: ir.Node, results: list[ir.Value | None], name: str) -> None:
    """Replace the uses of the outputs of the placeholder by the results of the fragment."""
    taken: set[int] = set()
    own = set(map(id, placeholder.inputs))
    owner = placeholder.graph
    assert owner is not None
    for position, (output, result) in enumerate(zip(placeholder.outputs, results, strict=True)):
        if result is None:
            if output.uses() or output.is_graph_output():
                raise TranslationError(
                    f"The symbolic function of {name} returns None for value {position}, which the model uses.",
                    fix="return a value of the graph at that position.",
                )
            continue
        producer = result.producer()
        outer = producer is None or producer.graph is not owner
        if output.is_graph_output() and (outer or id(result) in taken or result.is_graph_output()):
            # A value can be a graph output only once, and an input of the graph can't be one.
            identity = ir.node("Identity", [result], name=f"{placeholder.name}/Identity_{position}")
            identity.metadata_props.update(placeholder.metadata_props)
            owner.insert_before(placeholder, [identity])
            result = identity.outputs[0]
        if id(result) not in own and id(result) not in taken:
            _describe(result, output)
            taken.add(id(result))
        ir.convenience.replace_all_uses_with(output, result, replace_graph_outputs=True)


def _describe(result: ir.Value, output: ir.Value) -> None:
    """Give the value that replaces ``output`` its name, and the type and shape that only torch knows."""
    result.name = output.name
    result.dtype = result.dtype or output.dtype
    known = result.shape
    if known is None or (output.shape is not None and _agree(known, output.shape)):
        result.shape = output.shape
    result.metadata_props.update(output.metadata_props)


def _agree(one: ir.Shape, other: ir.Shape) -> bool:
    sizes = zip(one, other, strict=False)
    return len(one) == len(other) and all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in sizes)
