"""Constants in the model of a symbolic function: their attribute, and the folding of results that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from opbridge.engines.versions import SYMBOLIC

__all__ = ["contents_of", "fold_results", "fold_state", "state_constants"]

_FOLDED = {
    "Add", "Cast", "Concat", "Div", "Equal", "Gather", "Greater", "Less", "Mod", "Mul", "Neg", "Not", "Pow", "Range",
    "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "Reshape", "Shape", "Slice", "Sqrt", "Squeeze", "Sub",
    "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


def state_constants(model: ir.Model) -> None:
    """Give each Constant a tensor: ``g.op("Constant", value_f=0.5)`` made an attribute that ONNX does not have."""
    for node in model.graph.all_nodes():
        stated = node.attributes.get("value") if node.op_type == "Constant" and node.domain == "" else None
        if stated is not None and stated.type != ir.AttributeType.TENSOR:
            tensor = _tensor(stated.value)
            node.attributes["value"] = ir.AttrTensor("value", tensor)
            node.outputs[0].dtype, node.outputs[0].shape = tensor.dtype, ir.Shape(tensor.shape)


def _tensor(value: Any) -> ir.TensorProtocol:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if isinstance(first, str):
        texts = np.array(value, dtype=object)
        return ir.StringTensor([text.encode() for text in texts.ravel()], shape=ir.Shape(texts.shape))
    return ir.tensor(value, dtype=ir.DataType.FLOAT if isinstance(first, float) else ir.DataType.INT64)


def fold_results(model: ir.Model) -> None:
    """Replace each output of the graph that follows from constants and static shapes alone by its contents."""
    for value in dict.fromkeys(model.graph.outputs):
        node = value.producer()
        if node is not None and node.op_type in _FOLDED and node.domain == "" and node.graph is model.graph:
            array = _known(value, model.opset_imports[""])
            if array is not None:
                _replace(value, array)


def fold_state(model: ir.Model) -> None:
    """Replace each node of a symbolic function that follows from weights and constants alone by its contents."""
    for node in list(model.graph):
        if SYMBOLIC in node.metadata_props and node.op_type in _FOLDED - {"Shape"} and node.domain == "":
            inputs = [None if value is None else ir.convenience.get_const_tensor(value) for value in node.inputs]
            if inputs and None not in inputs and len(node.outputs) == 1:
                array = _run(node, [tensor.numpy() for tensor in inputs if tensor], model.opset_imports[""])
                if array is not None:
                    _replace(node.outputs[0], array)


def contents_of(value: ir.Value, opset: int, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return the contents of a value that the old exporter would have known; otherwise None.

    That exporter computed what follows from constants alone before it called a symbolic function, and removed casts to
    the element type of another tensor. Sizes were values of the graph.

    Args:
        value: A value of the model that is being translated.
        opset: The opset of this model.
        given: The contents of the values that are constants in the user's code, by name.
    """
    node = value.producer()
    if str(value.name) in given:
        return given[str(value.name)]
    if node is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        return tensor.numpy()
    if node.domain or node.op_type not in {*_FOLDED, "CastLike", "Identity"} - {"Shape"}:
        return None
    # The second input of CastLike stands for its element type only.
    needed = node.inputs[:1] if node.op_type == "CastLike" else node.inputs
    inputs = [None if item is None else contents_of(item, opset, given) for item in needed]
    if any(array is None for array in inputs):
        return None
    if node.op_type == "CastLike":
        like = node.inputs[1].dtype if node.inputs[1] is not None else None
        return None if like is None else inputs[0].astype(like.numpy())  # type: ignore[union-attr]
    return _run(node, inputs, opset)


def _known(value: ir.Value | None, opset: int) -> np.ndarray | None:
    """Return the contents of a value if they follow from constants and static shapes; otherwise None."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is not None:
        return tensor.numpy()
    node = value.producer() if value is not None else None
    if node is None or node.op_type not in _FOLDED or node.domain or None in node.inputs:
        return None
    if node.op_type == "Shape":
        shape = node.inputs[0].shape  # type: ignore[union-attr]
        if shape is None or not shape.is_static():
            return None
        start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
        return np.asarray(shape.numpy()[start:end], np.int64)
    inputs = [_known(item, opset) for item in node.inputs]
    if any(item is None for item in inputs):
        return None
    return _run(node, inputs, opset)


def _run(node: ir.Node, inputs: list[np.ndarray | None], opset: int) -> np.ndarray | None:
    """Return the output of a node for these inputs; None if the reference evaluator fails on it."""
    proto = ir.serde.serialize_node(node)
    del proto.input[:]
    proto.input.extend(f"input_{position}" for position in range(len(inputs)))
    feeds = {f"input_{position}": array for position, array in enumerate(inputs)}
    try:
        (result,) = ReferenceEvaluator(proto, opsets={"": opset}).run(None, feeds)
    except Exception:  # It computes with NumPy, and any NumPy exception can pass through.
        return None
    return np.asarray(result)


def _replace(value: ir.Value, array: np.ndarray) -> None:
    node = value.producer()
    assert node is not None
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    constant = ir.node("Constant", [], attributes={"value": ir.tensor(array)})
    made = constant.outputs[0]
    made.name, made.dtype, made.shape = value.name, ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    graph.insert_before(node, [constant])
    ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
    graph.remove(node, safe=True)
