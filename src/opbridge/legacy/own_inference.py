"""What the old exporter's passes did, for our own graph: types, sizes, and casts of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch

from opbridge.legacy.own_convert import attribute
from opbridge.legacy.own_graph import Graph, Node, Value
from opbridge.legacy.own_types import TensorType

__all__ = ["cast_arguments", "infer"]


def infer(node: Node, opset: int) -> None:
    """Give the outputs of a node of the standard domain the types and sizes that follow from its inputs."""
    namespace, _, name = node.kind().partition("::")
    if namespace != "onnx":
        return
    if name == "Constant":
        _infer_constant(node)
        return
    try:
        schema = onnx.defs.get_schema(name, opset, "")
        found = onnx.shape_inference.infer_node_outputs(
            schema, _proto(node), *_known(node), opset_imports=[onnx.helper.make_opsetid("", opset)]
        )
    except Exception:  # A schema without inference, or inputs of unknown types: the outputs stay as they are.
        return
    for position, value in enumerate(node.outputs()):
        if (inferred := found.get(f"output_{position}")) is not None:
            value.setType(_type(inferred, value.type()))


def _infer_constant(node: Node) -> None:
    kind, contents = next(iter(node.attributes.values()))
    if kind in ("t", "z"):
        node.output().inferTypeFrom(contents)
    elif kind in ("i", "f", "is", "fs"):
        node.output().inferTypeFrom(torch.tensor(contents, dtype=torch.float32 if kind[0] == "f" else torch.int64))


def _proto(node: Node) -> onnx.NodeProto:
    names = ["" if value is None or value.node().mustBeNone() else f"v{value.unique()}" for value in node.inputs()]
    outputs = [f"output_{position}" for position in range(node.outputsSize())]
    proto = onnx.helper.make_node(node.kind().partition("::")[2], names, outputs)
    for name, (kind, contents) in node.attributes.items():
        proto.attribute.append(ir.serde.serialize_attribute(attribute(name, kind, contents)))
    return proto


def _known(node: Node) -> tuple[dict[str, onnx.TypeProto], dict[str, onnx.TensorProto]]:
    """The types of a node's inputs, and the contents of those that are constants."""
    types: dict[str, onnx.TypeProto] = {}
    contents: dict[str, onnx.TensorProto] = {}
    for value in node.inputs():
        if value is None or not isinstance(value.type(), TensorType) or value.type().dtype() is None:
            continue
        name, type_ = f"v{value.unique()}", value.type()
        element = int(ir.tensor_adapters.from_torch_dtype(type_.dtype()))
        types[name] = onnx.helper.make_tensor_type_proto(element, type_.varyingSizes())
        tensor = constant_of(value)
        if tensor is not None:
            contents[name] = ir.serde.serialize_tensor(ir.tensor_adapters.TorchTensor(tensor.contiguous()))
    return types, contents


def constant_of(value: Value) -> torch.Tensor | None:
    """The contents of a constant; None for any other value."""
    node = value.node()
    kind, contents = node.attributes.get("value", ("", None)) if node.kind() == "onnx::Constant" else ("", None)
    return contents if kind in ("t", "z") else None


def _type(inferred: onnx.TypeProto, before: Any) -> Any:
    if not inferred.HasField("tensor_type"):
        return before
    found = inferred.tensor_type
    dtype = ir.tensor_adapters.to_torch_dtype(ir.DataType(found.elem_type)) if found.elem_type else before.dtype()
    sizes = [size.dim_value if size.HasField("dim_value") else None for size in found.shape.dim]
    return TensorType(dtype, sizes if found.HasField("shape") else before.varyingSizes())


_ALL = slice(None)
_MIXED = {
    **dict.fromkeys(("Add", "Concat", "Div", "Gemm", "Max", "MatMul", "Min", "Mod", "Mul", "Pow", "Sub"), _ALL),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _ALL),
    "Where": slice(1, None),
}
"""The operators whose arguments PyTorch lets differ in type and ONNX does not, and which arguments those are."""


def cast_arguments(graph: Graph, opset: int) -> None:
    """Bring the arguments of arithmetic to one type, as PyTorch's type promotion has it.

    Constants of rank 0 count as Python numbers: they give way to tensors, unless they are of a higher category.
    """
    for block in list(graph.all_blocks()):
        position = 0
        while position < len(block.list):
            node = block.list[position]
            wanted = _MIXED.get(node.kind().removeprefix("onnx::"))
            if wanted is not None:
                casts = _cast(graph, node, wanted, opset)
                block.list[position:position] = casts
                position += len(casts)
            infer(node, opset)
            position += 1


def _cast(graph: Graph, node: Node, wanted: slice, opset: int) -> list[Node]:
    values = [value for value in node.inputs()[wanted] if value is not None]
    dtype = _promoted(values)
    casts: list[Node] = []
    for position, value in enumerate(node.inputs()):
        own = value.type().dtype() if value in values and isinstance(value.type(), TensorType) else None
        if own is None or dtype is None or own == dtype:
            continue
        constant = constant_of(value)
        cast = Node("onnx::Constant" if constant is not None else "onnx::Cast", [], 1, graph)
        if constant is not None:
            cast.set("value", "t", constant.to(dtype))
        else:
            cast.addInput(value)
            cast.set("to", "i", int(ir.tensor_adapters.from_torch_dtype(dtype)))
        infer(cast, opset)
        node.replaceInput(position, cast.output())
        casts.append(cast)
    return casts


def _promoted(values: Sequence[Value]) -> torch.dtype | None:
    """The type in which PyTorch computes with these arguments."""
    numbers: list[torch.dtype] = []
    tensors: list[torch.dtype] = []
    for value in values:
        dtype = value.type().dtype() if isinstance(value.type(), TensorType) else None
        if dtype is None:
            continue
        wrapped = constant_of(value) is not None and value.type().dim() == 0
        if wrapped and dtype == torch.float64:
            numbers.append(torch.get_default_dtype())
        else:
            (numbers if wrapped and dtype in (torch.int64, torch.bool) else tensors).append(dtype)
    promoted: torch.dtype | None = None
    for found in tensors or numbers:
        promoted = found if promoted is None else torch.promote_types(promoted, found)
    for number in numbers if tensors else ():
        assert promoted is not None
        if _category(number) > _category(promoted):
            promoted = number
    return promoted


def _category(dtype: torch.dtype) -> int:
    """Booleans below integers below floats below complex numbers."""
    return 0 if dtype == torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
