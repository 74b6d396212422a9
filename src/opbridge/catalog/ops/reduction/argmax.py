"""The indices of the largest and the smallest elements; the index of the first NaN if there is one."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import BOOL, INT32
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.element_types import FLOATING, FLOATS, only_for

_REASON = "ONNX Runtime's ArgMax and ArgMin pass over NaN"


def _position(self: Any, dim: int | None, keepdim: bool, find: Any) -> Any:
    rank = len(self.shape)
    if rank == 0:
        return op.Constant(value_int=0)
    axis = 0 if dim is None else dim % rank
    values = op.Reshape(self, op.Constant(value_ints=[-1])) if dim is None else self
    kept = int(keepdim and dim is not None)
    position = find(values, axis=axis, keepdims=kept)
    if self.dtype in FLOATS and keeps_nan():
        is_nan = op.Cast(op.IsNaN(values), to=INT32.dtype)
        has_nan = op.ReduceMax(is_nan, op.Constant(value_ints=[axis]), keepdims=kept)
        first_nan = op.ArgMax(is_nan, axis=axis, keepdims=kept)
        position = op.Where(op.Cast(has_nan, to=BOOL.dtype), first_nan, position)
    if dim is None and keepdim:
        return op.Reshape(position, op.Constant(value_ints=[1] * rank))
    return position


@translation("aten::argmax", overrides=_REASON)
def argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the first of the largest elements, or of the first NaN.

    argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
    """
    return _position(self, dim, keepdim, op.ArgMax)


@translation("aten::argmin", overrides=_REASON)
def argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The index of the first of the smallest elements, or of the first NaN.

    argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor
    """
    return _position(self, dim, keepdim, op.ArgMin)


@decomposition("aten::max.dim", overrides=_REASON)
@only_for(*FLOATING)
def max_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The largest element along ``dim`` and its index, or NaN and its index.

    max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return torch.amax(self, dim, keepdim), torch.argmax(self, dim, keepdim)


@decomposition("aten::min.dim", overrides=_REASON)
@only_for(*FLOATING)
def min_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest element along ``dim`` and its index, or NaN and its index.

    min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return torch.amin(self, dim, keepdim), torch.argmin(self, dim, keepdim)
