"""Softmax of scores of which a mask hides some in every run, for ``faster_forms``.

Measured with ONNX Runtime 1.32 on one thread of an x86-64 processor: exp takes ten times as long where its result is
below the normal numbers of float32 (-infinity included), and a product with such results thirty times as long. Hidden
scores are -infinity, or -100 in Swin, so that attention with a causal mask takes twice as long as without, and a Swin
transformer a third longer. No score is more than 80 below the largest of its row here: exp(-80) is a normal number that
a float32 sum with exp(0) does not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opbridge.onnx_model.opsets.building import Builder

__all__ = ["is_masked", "softmax_of_bounded"]

_BELOW = 80.0
"""How far below the largest score of its row a score is at most."""
_HIDDEN = -50.0
"""What hides a score is at most this number."""
_MOVED = frozenset({"Cast", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_COMBINED = frozenset({"And", "Or", "Not"})
_SIZES = frozenset({"Shape", "Size"})


def is_masked(node: ir.Node, shape: Sequence[Any]) -> bool:
    """Whether the Softmax is one of attention whose mask hides scores whatever the inputs of the model are."""
    axis = node.attributes.get_int("axis", -1)
    uses = node.outputs[0].uses()
    return (
        len(shape) > 1
        and axis in (-1, len(shape) - 1)
        and len(uses) > 0
        and not node.outputs[0].is_graph_output()
        and all(use.node.op_type == "MatMul" and use.idx == 0 for use in uses)
        and _has_mask(node.inputs[0])
    )


def _has_mask(value: ir.Value | None) -> bool:
    """Whether a fixed mask was added to the scores, or took their place."""
    hidden = _is_hidden(value)
    if hidden is not None or value is None or (node := value.producer()) is None:
        return bool(np.any(hidden) and not np.all(hidden))
    if node.op_type == "Where" and not node.domain:
        condition, *branches = node.inputs
        if any(np.all(hidden) for branch in branches if (hidden := _is_hidden(branch)) is not None):
            return _is_fixed(condition) or any(map(_has_mask, branches))
        return any(map(_has_mask, branches))
    if node.op_type in ("Add", "Sum") or node.op_type in _MOVED:
        return any(map(_has_mask, node.inputs))
    return False


def _is_hidden(value: ir.Value | None) -> np.ndarray | None:
    """Which elements of a constant hide a score; None if the value is no constant of floats."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor.numpy() <= _HIDDEN if tensor is not None and tensor.dtype is ir.DataType.FLOAT else None


def _is_fixed(condition: ir.Value | None) -> bool:
    """Whether a part of a condition depends on sizes and constants only, and is not the same everywhere."""
    tensor = ir.convenience.get_const_tensor(condition) if condition is not None else None
    if tensor is not None:
        truth = tensor.numpy()
        return bool(truth.any() and not truth.all())
    node = condition.producer() if condition is not None else None
    if node is None:
        return False
    if node.op_type in _COMBINED or node.op_type in _MOVED:
        return any(map(_is_fixed, node.inputs))
    return not _depends_on_inputs(node)


def _depends_on_inputs(node: ir.Node) -> bool:
    """Whether a node reads an input of its graph for more than its sizes."""
    found, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        for value in current.inputs if current.op_type not in _SIZES else ():
            source = value.producer() if value is not None else None
            if source is None and value is not None and value.is_graph_input():
                return True
            if source is not None and source not in found:
                found.add(source)
                waiting.append(source)
    return False


def softmax_of_bounded(op: Builder, node: ir.Node) -> ir.Value:
    """The Softmax of the scores relative to the largest of their row, of which none is lower than ``-_BELOW``."""
    (scores,) = node.inputs
    if op.opset < 18:
        largest = op.ReduceMax(scores, axes=[-1], keepdims=1)
    else:
        largest = op.ReduceMax(scores, op.constant(np.array([-1])), keepdims=1)
    result: ir.Value = op.Softmax(op.Max(op.Sub(scores, largest), -_BELOW), axis=-1)
    return result
