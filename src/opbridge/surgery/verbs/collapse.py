"""Replace all nodes between given values by one custom node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.surgery.edited import (
    Change,
    Edited,
    describe,
    find_value,
    finished,
    model_of,
    names_of_values,
)
from opbridge.surgery.matching import Bound, Match
from opbridge.surgery.places import add_functions, depends_on_itself, put, used_elsewhere
from opbridge.surgery.shapes import refine_shapes
from opbridge.surgery.template import Template

__all__ = ["collapse"]

_SMALL = 1024
"""Weights with fewer bytes become part of the node's body; larger ones become inputs of the node."""


def collapse(model: Any, operator: str, inputs: Sequence[str], outputs: Sequence[str]) -> Edited:
    """Replace all nodes between ``inputs`` and ``outputs`` by one custom node.

    The replaced nodes become the function body of the new node. Weights of at least 1 KB become additional inputs.

    Args:
        model: A path, an ``ir.Model`` or a ``ModelProto``. It is not changed.
        operator: The operator of the node, as ``"domain::Op"``.
        inputs: The names of the values that the node reads.
        outputs: The names of the values that the node produces.

    Raises:
        InputError: A value does not exist, an input of the model is needed that is not among ``inputs``, or a value in
            between is used elsewhere.
    """
    domain, _, name = operator.partition("::")
    if not domain or not name:
        raise InputError(f"{operator!r} is not a custom operator.", fix="write it as 'domain::Op'.")
    own = model_of(model)
    refine_shapes(own)
    starts = [find_value(own, item) for item in inputs]
    ends = [find_value(own, item) for item in outputs]
    nodes, weights = _between(starts, ends)
    reason = used_elsewhere(nodes, ends) or depends_on_itself(nodes, [*starts, *weights])
    if reason:
        raise InputError(f"What lies between can't be one node: {reason}.", fix="move the border, or add an output.")
    formal = [*starts, *weights]
    body = ir.convenience.extract(own.graph, formal, ends)
    _weights_inside(body)
    used = {node.domain for node in body.all_nodes()} | {""}
    body.opset_imports.update({key: own.opset_imports.get(key, 1) for key in sorted(used)})
    function = ir.Function(domain, name, "", graph=body, attributes=[])
    overload = add_functions(own, [function]).get("", "")
    template = Template(domain, name, overload, tuple(range(len(formal))), (), ())
    match = Match({value: Bound(value) for value in formal}, tuple(ends), dict.fromkeys(nodes))
    node = put(own.graph, match, formal, template, names_of_values(own))
    return finished(model, own, [Change(f"{len(nodes)} nodes are now one {operator}", (describe(node),))])


def _between(starts: Sequence[ir.Value], ends: Sequence[ir.Value]) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes from which ``ends`` are computed, up to ``starts``, and the large weights that they read."""
    nodes: dict[ir.Node, None] = {}
    weights: dict[ir.Value, None] = {}
    waiting, seen = list(ends), set(starts)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None:
            if any(item.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for item in node.attributes.values()):
                raise InputError(
                    f"The node {describe(node)!r} ({node.op_type}) has a subgraph, which can't be taken along.",
                    fix="choose a border that leaves it out.",
                )
            nodes[node] = None
            waiting.extend(item for item in node.inputs if item is not None)
        elif value.const_value is not None and not value.is_graph_input():
            if value.const_value.nbytes >= _SMALL:
                weights[value] = None
        else:
            user = next((describe(use.node) for use in value.uses() if use.node in nodes), "")
            raise InputError(
                f"The outputs need the model's input {value.name!r}, which is not among the inputs: the node {user!r} "
                "reads it.",
                fix=f"add {value.name!r} to the inputs.",
            )
    if not nodes:
        raise InputError("There is nothing between the inputs and the outputs.", fix="name other values.")
    unread = [value for value in starts if not any(use.node in nodes for use in value.uses())]
    if unread:
        raise InputError(
            f"The outputs don't depend on the input {unread[0].name!r}.", fix="leave it out, or name other outputs."
        )
    return list(nodes), sorted(weights, key=lambda value: str(value.name))


def _weights_inside(graph: ir.Graph) -> None:
    """Turn the graph's initializers, except inputs, into nodes, because a function can't have initializers."""
    for value in graph.inputs:
        graph.initializers.pop(str(value.name), None)
        value.const_value = None
    for value in sorted(graph.initializers.values(), key=lambda value: str(value.name)):
        constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)], name=f"{value.name}_node")
        constant.outputs[0].name = f"{value.name}_inside"
        constant.outputs[0].type, constant.outputs[0].shape = value.type, value.shape
        graph.insert_before(graph[0], constant)
        value.replace_all_uses_with(constant.outputs[0], replace_graph_outputs=True)
    graph.initializers.clear()
