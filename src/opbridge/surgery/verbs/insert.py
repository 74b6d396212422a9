"""Insert a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.surgery.edited import (
    Change,
    Edited,
    describe,
    find_node,
    find_value,
    finished,
    fresh_name,
    model_of,
    names_of_values,
)
from opbridge.surgery.shapes import infer_again
from opbridge.surgery.verbs.set_attributes import typed_attribute

__all__ = ["insert"]


def insert(
    model: Any,
    operator: str,
    on: str,
    *,
    inputs: Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    only: Sequence[str] | None = None,
    name: str | None = None,
) -> Edited:
    """Insert a node after a value. The readers of the value then read the node's output.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        operator: The operator, as ``"Relu"`` or ``"domain::Op"``; it must have one output.
        on: The name of the value. If it is an output of the model, the node produces that output, with the same name.
        inputs: The names of the node's inputs; by default ``on``. ``""`` omits an optional input.
        attributes: The attributes of the node.
        only: The names of the nodes that read the node's output; by default all nodes that read ``on``.
        name: The name of the node.

    Raises:
        InputError: A value or node does not exist, or the result would be cyclic or otherwise invalid.
    """
    own = model_of(model)
    domain, _, op_type = operator.rpartition("::")
    domain = "" if domain == "ai.onnx" else domain
    value = find_value(own, on)
    read = [find_value(own, item) if item else None for item in (inputs if inputs is not None else [on])]
    taken = names_of_values(own)
    given = [
        typed_attribute(domain, op_type, own.opset_imports.get("", 1), key, item)
        for key, item in (attributes or {}).items()
    ]
    node = ir.Node(domain, op_type, read, given, name=fresh_name(name or f"{op_type}_on_{on}", _node_names(own)))
    result = node.outputs[0]
    result.name = fresh_name(f"{on}_{op_type.lower()}", taken)
    if domain:
        own.opset_imports.setdefault(domain, 1)
        result.type, result.shape = value.type, value.shape
    _place(own.graph, node, value)
    readers = None if only is None else [find_node(own, item) for item in only]
    _redirect(own, value, node, readers)
    try:
        own.graph.sort()
    except ValueError as error:
        raise InputError(
            f"The node would read what is computed from {on!r}, and give {on!r} anew: the model would be cyclic.",
            fix="let only some nodes read its output, with only=[...] (--only).",
        ) from error
    infer_again(own)
    return finished(model, own, [Change(f"{operator} is inserted on {on!r}", (describe(node),))])


def _node_names(model: ir.Model) -> set[str]:
    return {node.name for node in model.graph.all_nodes() if node.name}


def _place(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    producer = value.producer()
    if producer is not None:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def _redirect(model: ir.Model, value: ir.Value, node: ir.Node, readers: Sequence[ir.Node] | None) -> None:
    uses = [use for use in value.uses() if use.node is not node and (readers is None or use.node in readers)]
    for reader in readers or ():
        if not any(use.node is reader for use in uses):
            raise InputError(
                f"The node {describe(reader)!r} does not read {value.name!r}.",
                fix="name nodes that read it, or leave them out.",
            )
    for use in uses:
        use.node.replace_input_with(use.idx, node.outputs[0])
    graph = model.graph
    if value in graph.outputs and readers is None:
        name, result = value.name, node.outputs[0]
        for position, item in enumerate(graph.outputs):
            if item is value:
                graph.outputs[position] = result
        if not value.is_graph_input():
            value.name, result.name = result.name, name
        if node.domain == "":
            # Its type and shape are inferred from the node.
            result.type = result.shape = None
