"""Binary search in sorted rows, as an ONNX Loop of log2(row length) iterations, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from onnxscript import BOOL, INT32, INT64, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::SearchSorted", "searchsorted.h")


@script()
def _insertion_points(row, values, length, before_equal) -> INT64[...]:  # type: ignore[no-untyped-def, valid-type]
    """Halve the ranges [first, last) of all values at once until they are empty."""
    one = op.Constant(value_int=1)
    two = op.Constant(value_int=2)
    first = op.Expand(op.Constant(value_int=0), op.Shape(values))
    last = first + length
    span = length
    unfinished = op.Greater(span, op.Constant(value_int=0))
    while unfinished:
        middle = (first + last) / two
        at_middle = op.GatherElements(row, op.Min(middle, length - one), axis=-1)
        stops = op.Or(op.Greater(at_middle, values), op.And(op.Equal(at_middle, values), before_equal))
        goes_on = op.And(op.Not(stops), op.Less(first, last))
        first = op.Where(goes_on, middle + one, first)
        last = op.Where(goes_on, last, middle)
        span = span / two
        unfinished = op.Greater(span, op.Constant(value_int=0))
    return first


def _flat(value: Any) -> Any:
    """Flatten to one axis, without a Reshape if possible, because an engine may copy the data."""
    return value if len(value.shape) == 1 else op.Reshape(value, op.Constant(value_ints=[-1]))


@decomposition("aten::searchsorted.Scalar")
def searchsorted_scalar(
    sorted_sequence: Tensor,
    self: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The index at which a number would be inserted to keep the row sorted.

    searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None,
    Tensor? sorter=None) -> Tensor
    """
    value = torch.full((), self, dtype=sorted_sequence.dtype)
    return torch.searchsorted(sorted_sequence, value, out_int32=out_int32, right=right, side=side, sorter=sorter)


@translation("aten::searchsorted.Tensor")
def searchsorted(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """The index at which each value would be inserted to keep its row sorted.

    searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None,
    Tensor? sorter=None) -> Tensor

    Binary search needs O(values) memory and O(values log length) time, while comparing every value with every element
    would need memory for all pairs. The steps are the same as in PyTorch (aten/src/ATen/native/Bucketization.cpp), so
    that the results agree also for unsorted rows and NaN.
    """
    row, values = _alike(sorted_sequence, self, sorter)
    length = op.Squeeze(op.Shape(row, start=-1), op.Constant(value_ints=[0]))
    before_equal = op.Cast(op.Constant(value_int=int(not (right or side == "right"))), to=BOOL.dtype)
    return _as_result(_insertion_points(row, values, length, before_equal), self, sorted_sequence, out_int32)


@kernel_translation("aten::searchsorted.Tensor")
def searchsorted_with_kernel(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """``searchsorted`` as a custom node with a kernel.

    searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None,
    Tensor? sorter=None) -> Tensor
    """
    row, values = _alike(sorted_sequence, self, sorter)
    found = custom_node("opbridge::SearchSorted", row, values, right=right or side == "right")
    return _as_result(found, self, sorted_sequence, out_int32)


@body_for("opbridge::SearchSorted")
def body(rows: Tensor, values: Tensor, right: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.searchsorted(rows, values, right=bool(right))


def _alike(sorted_sequence: Any, self: Any, sorter: Any) -> tuple[Any, Any]:
    """The rows and the values in one element type that has an order; both flat if all values share one row."""
    row, values = sorted_sequence, self
    if len(row.shape) <= 1:
        row, values = _flat(row), _flat(values)
    if sorted_sequence.dtype != self.dtype:  # As in PyTorch, the type of the result of an operation with both.
        common = torch.promote_types(*(ir.tensor_adapters.to_torch_dtype(x.dtype) for x in (sorted_sequence, self)))
        to = ir.tensor_adapters.from_torch_dtype(common)
        row, values = op.Cast(row, to=to), op.Cast(values, to=to)
    if row.dtype == BOOL.dtype:  # BOOL has no order in ONNX.
        row, values = op.Cast(row, to=INT32.dtype), op.Cast(values, to=INT32.dtype)
    if sorter is not None:
        row = op.GatherElements(row, op.Reshape(sorter, op.Shape(row), allowzero=1), axis=-1)
    return row, values


def _as_result(found: Any, self: Any, sorted_sequence: Any, out_int32: bool) -> Any:
    if len(self.shape) == 0:
        found = op.Squeeze(found)
    elif len(sorted_sequence.shape) <= 1:
        found = op.Reshape(found, op.Shape(self), allowzero=1)
    return op.Cast(found, to=INT32.dtype) if out_int32 else found
