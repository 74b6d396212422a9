"""Helpers for the arguments and results of all verbs."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir

from opbridge.atomic import reported, sync, temporary_sibling
from opbridge.errors import InputError
from opbridge.onnx_model.infer import without_weights
from opbridge.onnx_model.read import MappedTensor, model_of_proto, read_model
from opbridge.onnx_model.structure import did_you_mean
from opbridge.onnx_model.write import save_model
from opbridge.records import Record

__all__ = [
    "Change",
    "Edited",
    "ModelLike",
    "describe",
    "find_node",
    "find_value",
    "finished",
    "fresh_name",
    "model_of",
    "names_of_values",
    "remove_unused",
    "rename_value",
    "values_by_name",
    "values_of",
]


@dataclasses.dataclass(frozen=True)
class Change(Record):
    """One change of a model.

    Attributes:
        what: A short description of the change.
        where: The nodes or values that were changed.
    """

    what: str
    where: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Edited(Record):
    """A changed model. The original model is unchanged.

    Attributes:
        model: The resulting model. Its weights are shared with the original, or mapped from its file.
        changes: The changes, in order.
    """

    model: ir.Model
    changes: tuple[Change, ...]

    json_keys = ("changes",)

    def save(self, path: str | os.PathLike[str], *, external_data: bool | None = None, overwrite: bool = False) -> Path:
        """Write the model atomically.

        Args:
            path: The file to write; the file that the model was read from is allowed.
            external_data: Whether weights are stored in ``path + ".data"``; None to do so only above 2 GB.
            overwrite: Whether to overwrite an existing file.

        Raises:
            InputError: The file exists already, or can't be written.
        """
        target = Path(path)
        if target.is_dir() or (target.exists() and not overwrite):
            raise InputError(
                f"{str(path)!r} exists already.", fix="choose another name, or pass overwrite=True (--overwrite)."
            )
        with temporary_sibling(path, target) as folder, reported(path):
            save_model(self.model, folder, name=target.name, external_data=external_data)
            files = sorted(folder.iterdir(), key=lambda file: file.name == target.name)
            if not overwrite and (taken := [file.name for file in files if target.with_name(file.name).exists()]):
                raise InputError(
                    f"The weights would go to {taken[0]!r}, which exists already.",
                    fix="choose another name, or pass overwrite=True (--overwrite).",
                )
            # The model is written last, so that an incomplete result never looks like a model.
            for file in files:
                sync(file)
                os.replace(file, target.with_name(file.name))
            sync(target.parent)
        return target


ModelLike: TypeAlias = ir.Model | onnx.ModelProto | str | os.PathLike[str] | Edited


def model_of(model: Any) -> ir.Model:
    """A model that may be changed: read from a file, or a copy that shares the weights.

    Raises:
        InputError: The argument is not a model, or its file is damaged.
    """
    if isinstance(model, Edited):
        return model.model.clone()
    if isinstance(model, ir.Model):
        return model.clone()
    if isinstance(model, onnx.ModelProto):
        return model_of_proto(model)
    if isinstance(model, (str, os.PathLike)):
        return read_model(model)
    raise InputError(
        f"A {type(model).__name__} is no ONNX model.",
        fix="pass the path of an .onnx file, an ir.Model or a ModelProto.",
    )


def finished(original: Any, model: ir.Model, changes: Iterable[Change]) -> Edited:
    """The result of a verb, checked by ``onnx.checker`` with shape inference; inferred types are stored in it.

    Raises:
        InputError: The model is not valid; the message says whether the original was valid.
    """
    problem = _problem(model)
    if problem:
        earlier = _problem(model_of(original))
        if earlier:
            name = f"The model {Path(original).name!r}" if isinstance(original, str | os.PathLike) else "The model"
            raise InputError(
                f"{name} is not valid, before any change: {_first_line(earlier)}",
                fix="repair it first; onnx.checker.check_model(path, full_check=True) shows the same error.",
                details=earlier,
            )
        raise InputError(
            f"This would leave an invalid model: {_first_line(problem)}",
            fix="change what stands around it too, or change something else.",
            details=problem,
        )
    return Edited(model, tuple(changes))


def _problem(model: ir.Model) -> str:
    """Why the model is not valid; empty if it is."""
    light = without_weights(model)
    try:
        proto = ir.to_proto(light)
        onnx.checker.check_model(proto, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ir.serde.SerdeError,
        ValueError,
    ) as error:
        return str(error)
    _write_types(inferred, model)
    return ""


def _write_types(inferred: onnx.ModelProto, model: ir.Model) -> None:
    known = {info.name: info for info in inferred.graph.value_info}
    for node in model.graph:
        for value in node.outputs:
            info = known.get(value.name or "")
            if info is not None and (value.type is None or value.shape is None):
                found = ir.Value(name=value.name)
                ir.serde.deserialize_value_info_proto(info, found)
                value.type = value.type or found.type
                value.shape = value.shape if value.shape is not None else found.shape


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(("==>", "[ShapeInferenceError] Inference error(s):"))]
    return (shown or lines or ["unknown"])[0][:400]


def values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    """The values of a graph (not of its subgraphs) that have a name."""
    values = [*graph.inputs, *graph.initializers.values(), *(output for node in graph for output in node.outputs)]
    return {value.name: value for value in values if value.name}


def rename_value(value: ir.Value, name: str) -> None:
    """Rename a value; a weight that other models share keeps its name there."""
    tensor = value.const_value
    if isinstance(tensor, MappedTensor):
        value.const_value = copy.copy(tensor)
    elif tensor is not None:
        value.const_value = ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=tensor.shape, name=name)
    value.name = name


def values_of(model: ir.Model) -> Iterator[ir.Value]:
    """The inputs of the model and the outputs of all nodes, including those in subgraphs."""
    yield from model.graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs


def find_value(model: ir.Model, name: str, what: str = "value") -> ir.Value:
    """The value with this name in the main graph.

    Raises:
        InputError: There is no such value; the message lists the closest names.
    """
    known = values_by_name(model.graph)
    if name not in known:
        raise InputError(f"The model has no {what} {name!r}.", fix=did_you_mean(name, known))
    return known[name]


def find_node(model: ir.Model, name: str) -> ir.Node:
    """The node with this name, or the node that produces the value with this name; subgraphs are included.

    Raises:
        InputError: There is no such node, or more than one; the message lists the closest names.
    """
    nodes = list(model.graph.all_nodes())
    found = [node for node in nodes if node.name == name]
    found = found or [node for node in nodes if any(output.name == name for output in node.outputs)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"The model has {len(found)} nodes named {name!r}.",
            fix="name the value that the node gives: " + ", ".join(repr(node.outputs[0].name) for node in found[:8]),
        )
    known = [name for node in nodes for name in (node.name, *(output.name for output in node.outputs)) if name]
    raise InputError(f"The model has no node {name!r}.", fix=did_you_mean(name, known))


def describe(node: ir.Node) -> str:
    """The node's name; for an unnamed node, its operator and outputs."""
    return node.name or f"{node.op_type} → {next((output.name for output in node.outputs), '')}"


def names_of_values(model: ir.Model) -> set[str]:
    """The names of all values, including those in subgraphs."""
    graphs = [model.graph]
    names: set[str] = set()
    while graphs:
        graph = graphs.pop()
        names.update(values_by_name(graph))
        for node in graph:
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.GRAPH and not attribute.is_ref():
                    graphs.append(attribute.as_graph())
                elif attribute.type is ir.AttributeType.GRAPHS and not attribute.is_ref():
                    graphs.extend(attribute.as_graphs())
    return names


def fresh_name(base: str, taken: set[str]) -> str:
    """``base``, or ``base_1`` and so on if it is taken; the name is added to ``taken``."""
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def remove_unused(graph: ir.Graph, nodes: Sequence[ir.Node], values: Iterable[ir.Value | None] = ()) -> list[ir.Node]:
    """Remove the unused nodes among ``nodes``, everything that only they used, and unused ``values``.

    Returns:
        The nodes that were removed.
    """
    removed: dict[ir.Node, None] = {}
    waiting: list[ir.Node | ir.Value | None] = [*nodes, *values]
    while waiting:
        item = waiting.pop()
        if isinstance(item, ir.Node):
            if item in removed or item.graph is not graph or any(_is_used(output) for output in item.outputs):
                continue
            inputs = [*item.inputs, *_captured(item)]
            graph.remove(item, safe=True)
            removed[item] = None
            waiting.extend(inputs)
        elif item is not None and not _is_used(item):
            producer = item.producer()
            if producer is not None:
                waiting.append(producer)
            elif item.name in graph.initializers and not item.is_graph_input():
                del graph.initializers[item.name]
    return list(removed)


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _captured(node: ir.Node) -> list[ir.Value]:
    """The outer values that the subgraphs of a node read."""
    found: list[ir.Value] = []
    for attribute in node.attributes.values():
        if attribute.is_ref() or attribute.type is not ir.AttributeType.GRAPH:
            continue
        inner = set(values_by_name(attribute.as_graph()).values())
        for item in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
            found.extend(value for value in item.inputs if value is not None and value not in inner)
    return found
