"""Medians, by sorting: the lower of the two middle elements, as PyTorch defines it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.spec import decomposition


def _along(self: Tensor, dim: int, keepdim: bool, skips_nan: bool) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(self, dim=dim, stable=True)
    place = torch.full_like(indices.narrow(dim, 0, 1), (self.shape[dim] - 1) // 2)
    if self.is_floating_point():
        nan_count = self.isnan().sum(dim, keepdim=True)
        number_count = self.shape[dim] - nan_count
        # NaN is sorted last, so the first of them has the place behind the numbers.
        middle_number = ((number_count - 1) // 2).clamp_min(0)
        place = middle_number if skips_nan else torch.where(nan_count > 0, number_count, place)
    values, indices = values.gather(dim, place), indices.gather(dim, place)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@decomposition("aten::median.dim")
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median along ``dim`` and its position; NaN, and its first position, where there is one.

    median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Among equal elements the first is named; PyTorch names any of them.
    """
    return _along(self, dim, keepdim, skips_nan=False)


@decomposition("aten::nanmedian.dim")
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of what is not NaN along ``dim``, and its position.

    nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return _along(self, dim, keepdim, skips_nan=True)


def _of_all(self: Tensor, skips_nan: bool) -> Tensor:
    if self.numel() == 0:
        return torch.full((), math.nan, dtype=self.dtype)
    return _along(self.reshape(-1), 0, keepdim=False, skips_nan=skips_nan)[0]


@decomposition("aten::median.default")
def median(self: Tensor) -> Tensor:
    """The median of all elements; NaN if there is one.

    median(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=False)


@decomposition("aten::nanmedian.default")
def nanmedian(self: Tensor) -> Tensor:
    """The median of all elements that are not NaN; NaN if there are none.

    nanmedian(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=True)
