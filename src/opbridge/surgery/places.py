"""Replaces several nodes by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir

from opbridge.errors import InputError
from opbridge.surgery.edited import describe, fresh_name, remove_unused
from opbridge.surgery.matching import Bound, Match
from opbridge.surgery.template import Template

__all__ = ["add_functions", "depends_on_itself", "put", "used_elsewhere"]


def used_elsewhere(nodes: Collection[ir.Node], outputs: Sequence[ir.Value]) -> str:
    """Why the nodes can't be removed: another node uses an inner value. Empty if they can be removed."""
    inside = _with_helpers(nodes, outputs)
    for node in nodes:
        for value in node.outputs:
            if value in outputs:
                continue
            if value.is_graph_output():
                return f"its inner value {value.name!r} is an output of the graph"
            for use in value.uses():
                if use.node not in inside:
                    return f"its inner value {value.name!r} is used by {describe(use.node)!r} too"
    return ""


def _with_helpers(nodes: Collection[ir.Node], outputs: Sequence[ir.Value]) -> set[ir.Node]:
    """The nodes, and those used only by them, such as nodes that compute the shape for a Reshape."""
    inside = set(nodes)
    waiting = list(nodes)
    while waiting:
        for value in waiting.pop().inputs:
            helper = None if value is None else value.producer()
            if helper is None or helper in inside or any(item in outputs for item in helper.outputs):
                continue
            used = [use.node for item in helper.outputs for use in item.uses()]
            if all(node in inside for node in used) and not any(item.is_graph_output() for item in helper.outputs):
                inside.add(helper)
                waiting.append(helper)
    return inside


def depends_on_itself(nodes: Collection[ir.Node], inputs: Sequence[ir.Value]) -> str:
    """Why one node can't replace these: an input is computed from an output. Empty if it can."""
    inside = set(nodes)
    waiting, seen = list(inputs), set(inputs)
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if node is None:
            continue
        if node in inside:
            return f"its input {value.name!r} is computed inside it"
        for item in node.inputs:
            if item is not None and item not in seen:
                seen.add(item)
                waiting.append(item)
    return ""


def add_functions(model: ir.Model, functions: Sequence[ir.Function]) -> dict[str, str]:
    """Add the functions that the model does not have.

    Returns:
        The new overload by old overload, for functions whose name the model uses for another body.
    """
    renamed: dict[str, str] = {}
    for function in functions:
        own = model.functions.get(function.identifier())
        if own is None:
            model.functions[function.identifier()] = function
        elif _text(own) != _text(function):
            identifier, number = function.identifier(), 2
            while identifier in model.functions and _text(model.functions[identifier], identifier[2]) != _text(
                function, identifier[2]
            ):
                identifier = (*function.identifier()[:2], f"{function.overload}{number}")
                number += 1
            renamed[function.overload] = identifier[2]
            function.overload = identifier[2]
            model.functions.setdefault(identifier, function)
        model.opset_imports.setdefault(function.domain, 1)
        for domain, version in function.opset_imports.items():
            if model.opset_imports.setdefault(domain, version) != version:
                raise InputError(
                    f"The body of {function.domain}::{function.name} is written for opset {version} of "
                    f"{domain or 'ai.onnx'}, and the model for {model.opset_imports[domain]}.",
                    fix=f"convert the model to that opset: opbridge.convert_opset(model, {version}).",
                )
    overloads = any(function.overload for function in functions)
    model.ir_version = max(model.ir_version or 0, 10 if overloads else 8)
    return renamed


def _text(function: ir.Function, overload: str = "") -> bytes:
    proto = ir.to_proto(function)
    proto.overload = overload
    return bytes(proto.SerializeToString(deterministic=True))


def put(graph: ir.Graph, match: Match, inputs: Sequence[ir.Value], template: Template, taken: set[str]) -> ir.Node:
    """Replace the nodes of ``match`` by one node, and remove everything that is then unused.

    Args:
        graph: The graph that contains the nodes of the match.
        match: The match to replace.
        inputs: The pattern's inputs, in the order to which ``template.inputs`` refers.
        template: The description of the new node.
        taken: The names that are already used.
    """
    last = max(match.nodes, key=list(graph).index)
    bound = [None if position is None else match.inputs[inputs[position]] for position in template.inputs]
    values = [None if item is None else _materialised(graph, item, last, taken) for item in bound]
    node = ir.Node(
        template.domain,
        template.name,
        values,
        [ir.Attr(attribute.name, attribute.type, attribute.value) for attribute in template.attributes],
        overload=template.overload,
        num_outputs=len(match.outputs),
        name=fresh_name(f"{template.name}_{match.outputs[0].name}", taken),
    )
    graph.insert_after(last, node)
    replace_values(graph, match.outputs, node.outputs)
    remove_unused(graph, list(match.nodes), [item.value for item in bound if item is not None])
    graph.sort()
    return node


def replace_values(graph: ir.Graph, old: Sequence[ir.Value], new: Sequence[ir.Value]) -> None:
    """Replace ``old`` by ``new`` in all uses and outputs; the types and names are kept."""
    for before, after in zip(old, new, strict=True):
        after.type, after.shape = before.type, before.shape
        name = before.name
        before.replace_all_uses_with(after, replace_graph_outputs=True)
        before.name = f"{name}_replaced"
        after.name = name


def _materialised(graph: ir.Graph, bound: Bound, before: ir.Node, taken: set[str]) -> ir.Value:
    """The value of a bound input. A transposed value is added as a weight or with a Transpose node."""
    if bound.perm is None:
        return bound.value
    value = bound.value
    name = fresh_name(f"{value.name}_transposed", taken)
    if value.const_value is not None and not value.is_graph_input():
        array = np.ascontiguousarray(np.transpose(value.const_value.numpy(), bound.perm))
        tensor = ir.Tensor(array, dtype=value.const_value.dtype, name=name)
        made = ir.Value(name=name, type=value.type, shape=ir.Shape(array.shape), const_value=tensor)
        graph.register_initializer(made)
        return made
    node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", bound.perm)], name=name)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    if value.shape is not None:
        node.outputs[0].shape = ir.Shape([value.shape[axis] for axis in bound.perm])
    graph.insert_before(before, node)
    return node.outputs[0]
