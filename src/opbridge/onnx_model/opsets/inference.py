"""Type and shape inference for a single new node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from opbridge.onnx_model.opsets.constants import known
from opbridge.onnx_model.opsets.schemas import find_schema

__all__ = ["find_shape", "infer_outputs", "infer_subgraphs", "subgraphs_of"]

_SMALL = 64
_DEEPEST = 64


def subgraphs_of(node: ir.Node) -> list[ir.Graph]:
    """The graphs of a node, including nested graphs."""
    own = [attribute.as_graph() for attribute in node.attributes.values() if attribute.type is ir.AttributeType.GRAPH]
    return [graph for top in own for graph in (top, *top.subgraphs())]


def infer_subgraphs(node: ir.Node, opset: int) -> None:
    """Infer the types in a node's subgraphs together with those of its outputs."""
    proto = onnx.GraphProto(name="node", node=[ir.serde.serialize_node(node)])
    for value in dict.fromkeys((*(value for value in node.inputs if value is not None), *_captured(node))):
        proto.input.append(ir.serde.serialize_value(value))
    proto.output.extend(onnx.ValueInfoProto(name=value.name) for value in node.outputs if value.name)
    model = onnx.ModelProto(ir_version=10, graph=proto, opset_import=[onnx.helper.make_opsetid("", opset)])
    try:
        inferred = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(model, data_prop=True)).graph
    except (onnx.shape_inference.InferenceError, ir.serde.SerdeError, ValueError):
        return
    pairs = list(zip(inferred[0].outputs, node.outputs, strict=True))
    for source, target in zip(subgraphs_of(inferred[0]), subgraphs_of(node), strict=True):
        pairs += zip(source.inputs, target.inputs, strict=True)
        for one, other in zip(source, target, strict=True):
            pairs += zip(one.outputs, other.outputs, strict=True)
    for found, value in pairs:
        value.type = value.type or found.type
        value.shape = found.shape if value.shape is None else value.shape


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """The outer values that a node's subgraphs read."""
    graphs = set(subgraphs_of(node))
    for graph in graphs:
        for inner in graph:
            yield from (value for value in inner.inputs if value is not None and value.graph not in graphs)
        yield from (value for value in graph.outputs if value.graph not in graphs)


def infer_outputs(node: ir.Node, opset: int) -> None:
    """Infer the types and shapes of a node's outputs from its inputs."""
    schema = find_schema(node.op_type, opset)
    if schema is None or any(value is not None and value.type is None for value in node.inputs):
        return
    types, data = {}, {}
    for value in node.inputs:
        if value is None or not value.name:
            continue
        types[value.name] = ir.serde.serialize_value(value).type
        large = value.const_value is not None and value.const_value.size > _SMALL
        array = None if large else known(value)
        if array is not None and array.size <= _SMALL and array.dtype.kind in "iufb":
            data[value.name] = onnx.numpy_helper.from_array(np.asarray(array), value.name)
    imports = [onnx.helper.make_opsetid("", opset)]
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, ir.serde.serialize_node(node), types, data, opset_imports=imports
        )
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return
    for output in node.outputs:
        if output.name in inferred:
            proto = inferred[output.name]
            output.type = output.type or ir.serde.deserialize_type_proto_for_type(proto)
            if output.shape is None:
                shape = ir.serde.deserialize_type_proto_for_shape(proto)
                # The empty shape of a scalar counts as known.
                output.shape = _given_shape(node) if shape is None else shape


def _given_shape(node: ir.Node) -> ir.Shape | None:
    """The shape of another value from which a node's output takes its shape."""
    position = 0 if node.op_type == "ConstantOfShape" else 1
    if node.op_type not in ("ConstantOfShape", "Expand", "Reshape") or len(node.inputs) <= position:
        return None
    source = node.inputs[position]
    maker = None if source is None else source.producer()
    if maker is None or maker.op_type != "Shape" or maker.attributes or maker.inputs[0] is None:
        return None
    like = maker.inputs[0].shape
    # The result of an Expand may be larger.
    first = node.inputs[0]
    scalar = first is not None and first.shape is not None and len(first.shape) == 0
    return like if node.op_type != "Expand" or scalar else None


def find_shape(value: ir.Value, depth: int = 0) -> ir.Shape | None:
    """The shape of the value; if it is missing, it is derived from earlier nodes."""
    node = value.producer()
    if value.shape is None and node is not None and depth < _DEEPEST:
        for given in node.inputs:
            if given is not None:
                find_shape(given, depth + 1)
        if node.version is not None and not node.domain and not subgraphs_of(node):
            infer_outputs(node, node.version)
    return value.shape
