"""Medians, defined as in PyTorch as the lower of the two middle elements."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.ops.indexing.kthvalue import first_place, smallest


def _along(self: Tensor, dim: int, keepdim: bool, skips_nan: bool) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    count = (self.shape[dim] - 1) // 2 + 1
    if not self.is_floating_point() or not (keeps_nan() or skips_nan):
        values = smallest(self, count, dim).amax(dim, keepdim=True)
    elif skips_nan:
        is_number = ~self.isnan()
        number_count = is_number.sum(dim, keepdim=True)
        half = torch.topk(torch.where(is_number, self, math.inf), count, dim, largest=False).values
        values = half.gather(dim, ((number_count - 1) // 2).clamp_min(0))
        values = torch.where(number_count > 0, values, math.nan)
    else:
        values = smallest(self, count, dim).amax(dim, keepdim=True)
        values = torch.where(self.isnan().any(dim, keepdim=True), math.nan, values)
    indices = first_place(self, values, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@decomposition("aten::median.dim")
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median along ``dim`` and its index, or NaN and the index of the first NaN.

    median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)

    Of equal elements the first index is returned; PyTorch returns any of them.
    """
    return _along(self, dim, keepdim, skips_nan=False)


@decomposition("aten::nanmedian.dim")
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The median of the elements other than NaN along ``dim``, and its index.

    nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
    """
    return _along(self, dim, keepdim, skips_nan=True)


def _of_all(self: Tensor, skips_nan: bool) -> Tensor:
    if self.numel() == 0:
        return torch.full((), math.nan, dtype=self.dtype)
    return _along(self.reshape(-1), 0, keepdim=False, skips_nan=skips_nan)[0]


@decomposition("aten::median.default")
def median(self: Tensor) -> Tensor:
    """The median of all elements; NaN if any element is NaN.

    median(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=False)


@decomposition("aten::nanmedian.default")
def nanmedian(self: Tensor) -> Tensor:
    """The median of all elements other than NaN; NaN if there are none.

    nanmedian(Tensor self) -> Tensor
    """
    return _of_all(self, skips_nan=True)
