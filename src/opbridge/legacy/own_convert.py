"""From our own graph to an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from opbridge.legacy.own_graph import Block, Graph, Node, Value
from opbridge.legacy.own_types import TensorType
from opbridge.legacy.target import Target

__all__ = ["attribute", "to_model"]

_DOMAINS = {"onnx": "", "aten": "org.pytorch.aten"}
_KINDS = {
    "f": ir.AttributeType.FLOAT, "i": ir.AttributeType.INT, "s": ir.AttributeType.STRING,
    "fs": ir.AttributeType.FLOATS, "is": ir.AttributeType.INTS, "ss": ir.AttributeType.STRINGS,
}  # fmt: skip


def to_model(graph: Graph, opset: int, target: Target) -> ir.Model:
    """The model of a graph whose results are registered; nodes that nothing uses are left out.

    Raises:
        ValueError: A value that only the old exporter understands, a list or None, is used by a node.
    """
    made: dict[Value, ir.Value] = {}
    block = _graph(graph.block(), made)
    domains = sorted({node.domain for node in ir.traversal.RecursiveGraphIterator(block)} - {""})
    block.opset_imports.update({"": opset, **{name: target.custom_opsets.get(name, 1) for name in domains}})
    return ir.Model(block, ir_version=10)


def _graph(block: Block, made: dict[Value, ir.Value]) -> ir.Graph:
    inputs = [_value(value, made) for value in block.inputs()]
    nodes = [_node(node, made) for node in _used(block)]
    return ir.Graph(inputs, [made[value] for value in block.outputs()], nodes=nodes, name="symbolic")


def _used(block: Block) -> list[Node]:
    """The nodes that the results need."""
    needed: set[Value] = set(block.outputs())
    kept: list[Node] = []
    for node in reversed(list(block.nodes())):
        if needed.intersection(node.outputs()):
            kept.insert(0, node)
            needed.update(_taken(node))
    return kept


def _taken(node: Node) -> set[Value]:
    values = {value for value in node.inputs() if value is not None}
    for block in node.blocks():
        values.update(block.outputs())
        for inner in block.nodes():
            values |= _taken(inner)
    return values


def _value(value: Value, made: dict[Value, ir.Value]) -> ir.Value:
    if value not in made:
        made[value] = ir.Value(name=value.debugName())
        type_ = value.type()
        if isinstance(type_, TensorType):
            if type_.dtype() is not None:
                made[value].dtype = ir.tensor_adapters.from_torch_dtype(type_.dtype())  # type: ignore[arg-type]
            sizes = type_.varyingSizes()
            made[value].shape = None if sizes is None else ir.Shape(sizes)
    return made[value]


def _node(node: Node, made: dict[Value, ir.Value]) -> ir.Node:
    namespace, _, name = node.kind().partition("::")
    if namespace == "prim":
        raise ValueError(f"{node.kind()} is no operator of ONNX, and a node takes its value")
    inputs = [None if value is None or value.node().mustBeNone() else _input(value, made) for value in node.inputs()]
    attributes = [attribute(key, kind, contents) for key, (kind, contents) in node.attributes.items()]
    attributes += [_body(key, block, made) for key, block in zip(_bodies(name), node.blocks(), strict=False)]
    outputs = [_value(value, made) for value in node.outputs()]
    return ir.Node(_DOMAINS.get(namespace, namespace), name, inputs, attributes, outputs=outputs)


def _input(value: Value, made: dict[Value, ir.Value]) -> ir.Value:
    if value not in made and value.node().kind().startswith("prim::") and value.node().kind() != "prim::Param":
        raise ValueError(f"a node takes the value of {value.node().kind()}, which is no operator of ONNX")
    return made[value]


def _bodies(name: str) -> Sequence[str]:
    return ("then_branch", "else_branch") if name == "If" else ("body",)


def _body(name: str, block: Block, made: dict[Value, ir.Value]) -> ir.Attr:
    return ir.Attr(name, ir.AttributeType.GRAPH, _graph(block, made))


def attribute(name: str, kind: str, contents: Any) -> ir.Attr:
    """An attribute of our own graph as one of ONNX."""
    if kind in ("t", "z"):
        return ir.AttrTensor(name, tensor(contents))
    if kind == "ts":
        return ir.Attr(name, ir.AttributeType.TENSORS, [tensor(one) for one in contents])
    if kind == "g":
        return ir.Attr(name, ir.AttributeType.GRAPH, _graph(contents.block(), {}))
    if kind == "gs":
        return ir.Attr(name, ir.AttributeType.GRAPHS, [_graph(one.block(), {}) for one in contents])
    return ir.Attr(name, _KINDS[kind], contents)


def tensor(value: torch.Tensor) -> ir.TensorProtocol:
    """A tensor of torch as one of ONNX."""
    return ir.tensor_adapters.TorchTensor(value.detach().contiguous().cpu())
