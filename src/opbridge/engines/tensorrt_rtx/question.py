"""A node as a question to the parser: a model of that node alone.

The parser checks sizes and the contents of constants, so the question keeps the sizes in the model and the contents of
small constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["lone_model"]

_SMALL = 4096
"""Constants up to this size keep their contents; larger ones are weights, which become inputs."""


def lone_model(node: ir.Node, opset_imports: Mapping[str, int], ir_version: int) -> bytes | None:
    """A serialized model of this node alone; equal for nodes that ask the same question.

    Returns:
        The model; None if a type or a rank is unknown, the node has subgraphs, or an attribute is a parameter of an
        enclosing function.
    """
    import onnx_ir as ir

    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.is_ref() or attribute.type in graphs for attribute in node.attributes.values()):
        return None
    given = [value for value in node.inputs if value is not None]
    if any(value.dtype is None or value.shape is None for value in given):
        return None
    inputs = [None if value is None else _lone(value, f"x{i}") for i, value in enumerate(node.inputs)]
    outputs = [
        ir.Value(name="" if value.name == "" else f"y{i}", type=value.type) for i, value in enumerate(node.outputs)
    ]
    single = ir.Node(node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, name="node")
    graph = ir.Graph(
        [value for value in inputs if value is not None and value.const_value is None],
        [value for value in outputs if value.name],
        nodes=[single],
        initializers=[value for value in inputs if value is not None and value.const_value is not None],
        opset_imports={"": node.version or opset_imports.get("", 1)},
        name="question",
    )
    model = ir.serde.serialize_model(ir.Model(graph, ir_version=ir_version))
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def _lone(value: ir.Value, name: str) -> ir.Value:
    import onnx_ir as ir

    constant: Any = ir.convenience.get_const_tensor(value)
    if constant is not None and constant.size <= _SMALL:
        return ir.Value(name=name, type=value.type, shape=constant.shape, const_value=constant)
    assert value.shape is not None
    sizes = [size if isinstance(size, int) else None for size in value.shape]
    return ir.Value(name=name, type=value.type, shape=ir.Shape(sizes))
