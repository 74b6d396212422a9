"""The constant values in a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

__all__ = ["known"]

_LARGEST = 1024
_DEEPEST = 12
# Operators that compute shapes and axes; all of them are pure.
_FOLDED = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "Ceil",
        "Concat",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Expand",
        "Floor",
        "Gather",
        "Greater",
        "Less",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Range",
        "ReduceProd",
        "ReduceSum",
        "Reshape",
        "Size",
        "Slice",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Tile",
        "Unsqueeze",
        "Where",
    ]
)


def known(value: ir.Value | None, depth: int = 0) -> np.ndarray | None:
    """The value if it is a constant, or small and computable from constants and shapes; otherwise None."""
    if value is None:
        return None
    if value.const_value is not None:
        return None if value.is_graph_input() else value.const_value.numpy()
    node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx") or depth > _DEEPEST:
        return None
    if node.op_type == "Constant":
        return _constant(node)
    if node.op_type == "Identity":
        return known(node.inputs[0], depth + 1)
    if node.op_type == "Shape":
        return _shape(node)
    return _evaluated(node, value, depth) if node.op_type in _FOLDED else None


def _constant(node: ir.Node) -> np.ndarray | None:
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32),
                        ("value_floats", np.float32)):  # fmt: skip
        if name in node.attributes:
            attribute = node.attributes[name]
            return None if attribute.is_ref() else np.asarray(attribute.value, dtype=dtype)
    attribute = node.attributes.get("value")
    return None if attribute is None or attribute.is_ref() else attribute.as_tensor().numpy()


def _shape(node: ir.Node) -> np.ndarray | None:
    source = node.inputs[0]
    if source is None or source.shape is None or any(attribute.is_ref() for attribute in node.attributes.values()):
        return None
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    part = list(source.shape)[slice(start.as_int() if start else None, end.as_int() if end else None)]
    return np.array(part, dtype=np.int64) if all(isinstance(size, int) for size in part) else None


def _evaluated(node: ir.Node, value: ir.Value, depth: int) -> Any:
    if any(attribute.is_ref() for attribute in node.attributes.values()) or len(node.outputs) != 1:
        return None
    feeds = {}
    for given in node.inputs:
        if given is None:
            continue
        array = known(given, depth + 1)
        if array is None or array.size > _LARGEST:
            return None
        feeds[given.name] = array
    from onnx.reference import ReferenceEvaluator

    if node.version is None:
        return None
    infos = [ir.serde.serialize_value(given) for given in node.inputs if given is not None]
    names = list(dict.fromkeys(info.name for info in infos))
    graph = onnx.GraphProto(name="constant", node=[ir.serde.serialize_node(node)])
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in names)
    graph.output.append(onnx.ValueInfoProto(name=value.name))
    model = onnx.ModelProto(ir_version=8, graph=graph, opset_import=[onnx.helper.make_opsetid("", node.version)])
    try:
        (result,) = ReferenceEvaluator(model).run(None, feeds)
    except Exception:
        # A value that cannot be evaluated is not known; the caller reports what it needs.
        return None
    return result if isinstance(result, np.ndarray) else np.asarray(result)
