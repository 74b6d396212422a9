"""Variances and standard deviations, also of empty tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping computes float16 in float16, and reduces empty tensors, which some engines do not support"


def _mean(x: Tensor, axes: list[int], count: Any) -> Tensor:
    """The mean, by division if the tensor may be empty at run time: engines differ in ReduceMean of empty tensors."""
    if not isinstance(count, int):
        return x.sum(axes, keepdim=True) / count
    return x.mean(axes, keepdim=True) if axes else x


def _moments(self: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The variance and the mean in two passes, so that a large mean does not lose digits."""
    axes = sorted({axis % self.dim() for axis in dim} if dim else range(self.dim()))
    kept = [1 if axis in axes else size for axis, size in enumerate(self.shape)]
    shape = kept if keepdim else [size for axis, size in enumerate(kept) if axis not in axes]
    count = math.prod(self.shape[axis] for axis in axes)
    if isinstance(count, int) and count == 0:
        variance = torch.full(shape, math.nan, dtype=self.dtype.to_real())
        return variance, torch.complex(variance, variance) if self.is_complex() else variance
    x = self.float() if self.dtype.itemsize < 4 else self
    mean = _mean(x, axes, count)
    offset = x - mean
    squares = offset.real * offset.real + offset.imag * offset.imag if self.is_complex() else offset * offset
    total = squares.sum(axes, keepdim=keepdim) if axes else squares
    freedom = count - (1 if correction is None else correction)
    variance = total / (max(freedom, 0) if isinstance(freedom, int | float) else torch.sym_max(freedom, 0))
    real = variance.dtype if self.is_complex() else self.dtype
    return variance.to(real), mean.reshape(shape).to(self.dtype)


@decomposition("aten::var.correction", overrides=_WHY)
def var(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The sum of squared deviations divided by the count minus ``correction``.

    var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
    """
    return _moments(self, dim, correction, keepdim)[0]


@decomposition("aten::std.correction", overrides=_WHY)
def std(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """The square root of the variance.

    std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor
    """
    return torch.sqrt(_moments(self, dim, correction, keepdim)[0])


@decomposition("aten::var_mean.correction", overrides=_WHY)
def var_mean(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance and the mean.

    var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None,
    bool keepdim=False) -> (Tensor, Tensor)
    """
    return _moments(self, dim, correction, keepdim)


@decomposition("aten::std_mean.correction", overrides=_WHY)
def std_mean(
    self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean.

    std_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None,
    bool keepdim=False) -> (Tensor, Tensor)
    """
    variance, mean = _moments(self, dim, correction, keepdim)
    return torch.sqrt(variance), mean
