"""Largest and smallest elements, also over all axes and for rank 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from onnxscript import BOOL, FLOAT, INT32
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.element_types import FLOATS


def _extreme(self: Any, dims: Sequence[int], keepdim: bool, is_largest: bool) -> Any:
    if len(self.shape) == 0:
        return op.Identity(self)
    axes = sorted({dim % len(self.shape) for dim in dims} or range(len(self.shape)))
    reduce = op.ReduceMax if is_largest else op.ReduceMin

    def over_axes(x: Any, reduce: Any = reduce) -> Any:
        return reduce(x, op.Constant(value_ints=list(axes)), keepdims=int(keepdim))

    if self.dtype == BOOL.dtype:
        return op.Cast(over_axes(op.Cast(self, to=INT32.dtype)), to=BOOL.dtype)
    if self.dtype not in FLOATS or not keeps_nan():
        return over_axes(self)
    # PyTorch's maximum propagates NaN, which engines do not guarantee.
    has_nan = op.Cast(over_axes(op.Cast(op.IsNaN(self), to=FLOAT.dtype), op.ReduceMax), to=BOOL.dtype)
    return op.Where(has_nan, op.CastLike(op.Constant(value_float=math.nan), self), over_axes(self))


@translation("aten::amax", overrides="torch's mapping fails for rank 0 and for all axes, and may lose NaN")
def amax(self: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """The largest element over some axes or all; NaN if any element is NaN.

    amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
    """
    return _extreme(self, dim, keepdim, is_largest=True)


@translation("aten::amin", overrides="torch's mapping fails for rank 0 and for all axes, and may lose NaN")
def amin(self: Any, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """The smallest element over some axes or all; NaN if any element is NaN.

    amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor
    """
    return _extreme(self, dim, keepdim, is_largest=False)


@decomposition("aten::max.default", overrides="torch's mapping may lose NaN")
def max_of_all(self: Tensor) -> Tensor:
    """The largest of all elements; NaN if any element is NaN.

    max(Tensor self) -> Tensor
    """
    return torch.amax(self, list(range(self.dim())))


@decomposition("aten::min.default", overrides="torch's mapping may lose NaN")
def min_of_all(self: Tensor) -> Tensor:
    """The smallest of all elements; NaN if any element is NaN.

    min(Tensor self) -> Tensor
    """
    return torch.amin(self, list(range(self.dim())))


@decomposition("aten::aminmax")
def aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element along ``dim``, or of the whole tensor.

    aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)
    """
    dims = list(range(self.dim())) if dim is None else [dim]
    return torch.amin(self, dims, keepdim), torch.amax(self, dims, keepdim)
