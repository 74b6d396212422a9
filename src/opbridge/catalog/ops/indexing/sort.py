"""Sorting as in PyTorch: stable, with NaN as the largest. ONNX's TopK is stable but does not order NaN."""

from __future__ import annotations

from typing import Any

from onnxscript import BOOL, INT32, INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import translation
from opbridge.catalog.formulas.element_types import FLOATS


def _nan_last(order: Any, is_nan: Any, axis: int, descending: bool) -> Any:
    """Move the positions of NaN to the end (to the front when descending), and keep the order of all others.

    The stable partition does not need a second sort, because counting yields the position of each element.
    """
    last = op.Constant(value_int=axis)
    flag = op.Cast(op.GatherElements(is_nan, order, axis=axis), to=INT64.dtype)
    goes_first = flag if descending else op.Sub(1, flag)
    place_if_first = op.Sub(op.CumSum(goes_first, last), 1)
    first_count = op.ReduceSum(goes_first, op.Constant(value_ints=[axis]), keepdims=1)
    place_if_last = op.Add(first_count, op.Sub(op.CumSum(op.Sub(1, goes_first), last), 1))
    place = op.Where(op.Cast(goes_first, to=BOOL.dtype), place_if_first, place_if_last)
    return op.ScatterElements(order, place, order, axis=axis)


@translation("aten::sort", overrides="torch's mapping does not order NaN, and does not support sort.stable and bool")
def sort(self: Any, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """Sort along ``dim``; equal elements keep their order, NaN counts as the largest.

    sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)
    """
    if len(self.shape) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    axis = dim % len(self.shape)
    is_nan = op.IsNaN(self) if self.dtype in FLOATS and keeps_nan() else None
    keys = op.Cast(self, to=INT32.dtype) if self.dtype == BOOL.dtype else self
    if is_nan is not None:
        keys = op.Where(is_nan, op.CastLike(op.Constant(value_float=float("inf")), self), self)
    length = op.Shape(self, start=axis, end=axis + 1)
    values, order = op.TopK(keys, length, axis=axis, largest=int(descending), sorted=1)
    if keys is self:
        return values, order
    if is_nan is not None:
        order = _nan_last(order, is_nan, axis, descending)
    return op.GatherElements(self, order, axis=axis), order
