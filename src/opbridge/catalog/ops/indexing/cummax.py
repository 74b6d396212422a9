"""The cumulative maximum and its index, as ONNX Loops of log2(length) iterations, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any, TypeVar, Union

import torch
from onnxscript import BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT16, INT32, INT64, UINT8, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.catalog.formulas.element_types import FLOATS
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::CumMax", "cummax.h")

# onnxscript reads typing.Union, and not the | of types.
Element = TypeVar("Element", bound=Union[FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT64, INT32, INT16, INT8, UINT8])  # noqa: UP007


@script()
def _running_maximum(x: Element, axis: int) -> Element:  # type: ignore[valid-type]
    """After k iterations each element is the maximum of the 2**k elements up to it."""
    along = op.Reshape(op.Constant(value_int=axis), op.Constant(value_ints=[1]))
    start = op.Constant(value_ints=[0])
    length = op.Gather(op.Shape(x), along)
    best = x
    reach = op.Constant(value_ints=[1])
    unfinished = op.Squeeze(op.Less(reach, length))
    while unfinished:
        begun = op.Slice(best, start, reach, along)
        shifted = op.Slice(best, start, op.Neg(reach), along)
        best = op.Max(best, op.Concat(begun, shifted, axis=axis))
        reach = reach + reach
        unfinished = op.Squeeze(op.Less(reach, length))
    return best


@translation("aten::cummax")
def cummax(self: Any, dim: int) -> Any:
    """The cumulative maximum along ``dim``, and the index of its latest occurrence; NaN counts as the largest.

    cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Recursive doubling (Hillis and Steele, "Data parallel algorithms", 1986) needs O(n log n) work, a graph whose size
    does not depend on n, and no matrix of all pairs. The index is the largest index so far of an element that equals
    the maximum so far.
    """
    if len(self.shape) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    axis = dim % len(self.shape)
    if self.dtype in FLOATS and keeps_nan():
        is_nan = op.IsNaN(self)
        best = _running_maximum(op.Where(is_nan, _number(float("-inf"), self), self), axis=axis)
        counts = op.CumSum(op.Cast(is_nan, to=INT32.dtype), op.Constant(value_int=axis))
        is_spoilt = op.Cast(counts, to=BOOL.dtype)
        values = op.Where(is_spoilt, _number(float("nan"), self), best)
        is_met = op.Where(is_spoilt, is_nan, op.Equal(self, best))
    else:
        keys = op.Cast(self, to=INT32.dtype) if self.dtype == BOOL.dtype else self
        best = _running_maximum(keys, axis=axis)
        values = op.Cast(best, to=self.dtype)
        is_met = op.Equal(keys, best)
    length = op.Squeeze(op.Shape(self, start=axis, end=axis + 1))
    places = op.Range(op.Constant(value_int=0), length, op.Constant(value_int=1))
    places = op.Cast(places, to=INT32.dtype)
    shape = op.Constant(value_ints=[-1] + [1] * (len(self.shape) - 1 - axis))
    met = op.Mul(op.Cast(is_met, to=INT32.dtype), op.Reshape(places, shape))
    return values, op.Cast(_running_maximum(met, axis=axis), to=INT64.dtype)


@kernel_translation("aten::cummax")
def cummax_with_kernel(self: Any, dim: int) -> Any:
    """``cummax`` as a custom node with a kernel.

    cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)
    """
    if len(self.shape) == 0:
        return cummax(self, dim)
    return custom_node("opbridge::CumMax", self, num_outputs=2, dim=dim)


@body_for("opbridge::CumMax")
def body(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    return torch.cummax(x, dim)


def _number(value: float, like: Any) -> Any:
    return op.CastLike(op.Constant(value_float=value), like)
