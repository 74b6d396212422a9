"""Delete nodes, inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.onnx_model.structure import did_you_mean
from opbridge.surgery.dimensions import sizes_of
from opbridge.surgery.edited import Change, Edited, describe, find_node, finished, model_of, remove_unused
from opbridge.surgery.shapes import infer_again

__all__ = ["delete"]


def delete(model: Any, *, nodes: Sequence[str] = (), outputs: Sequence[str] = (), inputs: Sequence[str] = ()) -> Edited:
    """Delete nodes, outputs and inputs.

    Nodes that read a deleted node's output read the node's first input of the same type instead. Everything that is
    then unused is deleted too.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        nodes: The names of nodes, or of their outputs.
        outputs: The names of outputs of the model.
        inputs: The names of unused inputs of the model.

    Raises:
        InputError: A node, input or output does not exist; a node has no input that can replace its output; an input is
            used; or no output would be left.
    """
    own = model_of(model)
    changes = []
    for name in nodes:
        node = find_node(own, name)
        changes.append(Change(f"the node {describe(node)!r} ({node.op_type}) is deleted", _bypass(own, node)))
    for name in outputs:
        changes.append(Change(f"the output {name!r} is deleted", _delete_output(own.graph, name)))
    for name in inputs:
        _delete_input(own.graph, name)
        changes.append(Change(f"the input {name!r} is deleted"))
    if nodes:
        infer_again(own)
    return finished(model, own, changes)


def _bypass(model: ir.Model, node: ir.Node) -> tuple[str, ...]:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    used = [value for value in node.outputs if value.uses() or value.is_graph_output()]
    if len(used) > 1:
        raise InputError(
            f"The node {describe(node)!r} gives {len(used)} values that are used: "
            f"{', '.join(repr(value.name) for value in used)}.",
            fix="delete what uses them first, or extract the model before it.",
        )
    old_inputs = list(node.inputs)
    if used:
        _stand_in(graph, node, used[0])
    removed = remove_unused(graph, [node], old_inputs)
    return tuple(describe(item) for item in removed if item is not node)


def _stand_in(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Replace the output of the node by one of its inputs."""
    source = next((item for item in node.inputs if item is not None and _same_kind(item, value)), None)
    if source is None:
        raise InputError(
            f"The node {describe(node)!r} ({node.op_type}) has no input of the type and rank of its output "
            f"{value.name!r} that could stand for it.",
            fix="extract the model before the node, or insert another node in its place first.",
        )
    if value.is_graph_output():
        if source.is_graph_input() or source.is_graph_output() or source.producer() is None:
            # An output of the graph needs a node that produces it.
            identity = ir.Node("", "Identity", [source], name=f"Identity_for_{value.name}")
            identity.outputs[0].type, identity.outputs[0].shape = source.type, source.shape
            graph.insert_before(node, identity)
            source = identity.outputs[0]
        name = value.name
        value.replace_all_uses_with(source, replace_graph_outputs=True)
        value.name = f"{name}_deleted"
        source.name = name
    else:
        value.replace_all_uses_with(source)


def _same_kind(source: ir.Value, value: ir.Value) -> bool:
    if source.dtype is not None and value.dtype is not None and source.dtype != value.dtype:
        return False
    one, other = sizes_of(source), sizes_of(value)
    return one is None or other is None or len(one) == len(other)


def _delete_output(graph: ir.Graph, name: str) -> tuple[str, ...]:
    found = next((value for value in graph.outputs if value.name == name), None)
    if found is None:
        known = [str(value.name) for value in graph.outputs]
        raise InputError(f"The model has no output {name!r}.", fix=did_you_mean(name, known))
    if len(graph.outputs) == 1:
        raise InputError(f"{name!r} is the only output of the model.", fix="keep one output.")
    graph.outputs.remove(found)
    producer = found.producer()
    return tuple(describe(node) for node in remove_unused(graph, [producer] if producer is not None else []))


def _delete_input(graph: ir.Graph, name: str) -> None:
    found = next((value for value in graph.inputs if value.name == name), None)
    if found is None:
        known = [str(value.name) for value in graph.inputs]
        raise InputError(f"The model has no input {name!r}.", fix=did_you_mean(name, known))
    readers = [describe(use.node) for use in found.uses()]
    if readers or found.is_graph_output():
        raise InputError(
            f"The input {name!r} is read by {', '.join(map(repr, readers[:5])) or 'an output'}.",
            fix="delete what reads it first, or cut the model behind it with extract.",
        )
    graph.inputs.remove(found)
    if name in graph.initializers:
        del graph.initializers[name]
