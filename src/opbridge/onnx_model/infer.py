"""Type and shape inference for values that a model leaves untyped, including those inside function bodies."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_ir import Function, Graph, Model, Node

__all__ = ["bind_body", "binding", "fill_types", "with_types", "without_weights"]

_INFERENCE_ERRORS = (onnx.shape_inference.InferenceError, ir.serde.SerdeError, ValueError)
_SMALL = 64


def with_types(model: Model) -> Model:
    """The model itself if every value outside of functions has a type; otherwise a copy with inferred types."""
    return model if _is_typed(model.graph.all_nodes()) else _infer_graph(model.clone())


def fill_types(model: Model, *, shapes: bool = False) -> None:
    """Infer types in place: in the graph, and in each function whose calls all pass the same types.

    Args:
        model: The model to change.
        shapes: Whether to infer shapes even if every value has a type.
    """
    if shapes or not _is_typed(model.graph.all_nodes()):
        _infer_graph(model)
    calls: dict[Any, list[Node]] = {identifier: [] for identifier in model.functions}
    callers: dict[Any, set[Any]] = {identifier: set() for identifier in model.functions}
    for identifier, scope in ((None, model.graph), *model.functions.items()):
        for node in scope.all_nodes():
            if node.op_identifier() in model.functions:
                calls[node.op_identifier()].append(node)
                callers[node.op_identifier()].add(identifier)
    # Calls inside a function have types only once that function has been typed.
    for identifier in graphlib.TopologicalSorter(callers).static_order():
        bound = {binding(call): call for call in calls.get(identifier, ())}
        if len(bound) == 1:
            function = model.functions[identifier]
            _copy_types(bind_body(model, function, next(iter(bound.values()))), function)


def binding(call: Node) -> tuple[Any, ...]:
    """A key for what a call passes to a function's body: the types and ranks of its inputs, and its attributes."""
    inputs = tuple(
        None if value is None else (value.type, None if value.shape is None else len(value.shape))
        for value in call.inputs
    )
    return (inputs, tuple(sorted((name, repr(attribute.value)) for name, attribute in call.attributes.items())))


def bind_body(model: Model, function: Function, call: Node) -> Function | Graph:
    """The body of ``function`` with the types and attributes of ``call``.

    Returns:
        The function itself if it states all of its types and they match the call's; otherwise a graph with the same
        nodes in the same order and with inferred types.
    """
    given = [None if value is None else value.type for value in call.inputs]
    if _is_complete(function) and [value.type for value in function.inputs] == given:
        return function
    try:
        return _inferred_body(model, function, call)
    except _INFERENCE_ERRORS:
        # The engine is queried with the types that are known.
        return function


def _is_typed(nodes: Iterable[Node]) -> bool:
    return all(value.type is not None for node in nodes for value in node.outputs if value.name)


def _is_complete(function: Function) -> bool:
    if any(attribute.is_ref() for node in function.all_nodes() for attribute in node.attributes.values()):
        return False
    return all(value.type is not None for value in function.inputs) and _is_typed(function.all_nodes())


def _infer_graph(model: Model) -> Model:
    """Add the types that ONNX's shape inference finds to the values of the graph and its subgraphs."""
    light = without_weights(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(ir.serde.serialize_model(light), data_prop=True)
        _copy_types(ir.serde.deserialize_model(inferred).graph, model.graph)
    except _INFERENCE_ERRORS:
        # The engine is queried with the types that are known.
        return model
    return model


def without_weights(model: Model) -> Model:
    """A copy in which large initializers are inputs: small constants, which determine shapes, are kept."""
    light: Model = model.clone()
    for name, value in list(light.graph.initializers.items()):
        # Only small constants determine shapes, and a serialized model is limited to 2 GB.
        if value.const_value is None or value.const_value.size > _SMALL:
            del light.graph.initializers[name]
            value.const_value = None
            if value not in light.graph.inputs:
                light.graph.inputs.append(value)
    return light


def _inferred_body(model: Model, function: Function, call: Node) -> Graph:
    body = ir.serde.serialize_function(function)
    attributes = {**function.attributes, **call.attributes}
    given = {
        name: ir.serde.serialize_attribute(attribute)
        for name, attribute in attributes.items()
        if not attribute.is_ref() and attribute.value is not None
    }
    absent = {formal.name for position, formal in enumerate(function.inputs) if _argument(call, position) is None}
    _substitute(body.node, given, absent)
    graph = onnx.GraphProto(name=function.name, node=body.node)
    for position, formal in enumerate(function.inputs):
        actual = _argument(call, position)
        if actual is not None:
            info = ir.serde.serialize_value(actual)
            info.name = formal.name
            graph.input.append(info)
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in function.outputs)
    proto = onnx.ModelProto(ir_version=10, graph=graph, opset_import=body.opset_import)
    proto.functions.extend(ir.serde.serialize_function(other) for other in model.functions.values())
    inferred: Graph = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(proto)).graph
    _copy_types(function, inferred)
    return inferred


def _argument(call: Node, position: int) -> Any:
    return call.inputs[position] if position < len(call.inputs) else None


def _substitute(nodes: Iterable[Any], given: Mapping[str, Any], absent: set[str | None]) -> None:
    """Replace references to the function's attributes by the call's attributes, and omit absent inputs."""
    for node in nodes:
        for position, name in enumerate(node.input):
            if name in absent:
                node.input[position] = ""
        kept = []
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name not in given:
                    continue
                name = attribute.name
                attribute.CopyFrom(given[attribute.ref_attr_name])
                attribute.name = name
            for graph in (attribute.g, *attribute.graphs):
                _substitute(graph.node, given, absent)
            kept.append(attribute)
        copies = [onnx.AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
        del node.attribute[:]
        node.attribute.extend(copies)


def _copy_types(source: Graph | Function, target: Graph | Function) -> None:
    """Copy types to the untyped values of ``target`` from ``source``, which has the same nodes in the same order."""
    if source is target:
        return
    pairs = list(zip(source.inputs, target.inputs, strict=False)) if len(source.inputs) == len(target.inputs) else []
    for known, node in zip(source.all_nodes(), target.all_nodes(), strict=True):
        pairs += zip(known.outputs, node.outputs, strict=True)
    for inner, other in zip(source.subgraphs(), target.subgraphs(), strict=True):
        pairs += zip(inner.inputs, other.inputs, strict=True)
    for known, value in pairs:
        if value.type is None:
            value.type = known.type
        if value.shape is None:
            value.shape = known.shape
