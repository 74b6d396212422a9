"""The k-th smallest element, as the largest of the k smallest."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition


def smallest(self: Tensor, k: Any, dim: int) -> Tensor:
    """The ``k`` smallest elements along ``dim``, unordered; NaN is replaced by infinity."""
    keys = torch.where(self.isnan(), math.inf, self) if self.is_floating_point() and keeps_nan() else self
    return torch.topk(keys, k, dim, largest=False, sorted=False).values


def first_place(self: Tensor, values: Tensor, dim: int) -> Tensor:
    """The first index of each of ``values`` along ``dim``, with size 1 there; NaN is equal to NaN."""
    is_same = self == values
    if self.is_floating_point() and keeps_nan():
        is_same = torch.where(values.isnan(), self.isnan(), is_same)
    return torch.argmax(is_same.to(torch.int32), dim, keepdim=True)


@decomposition("aten::kthvalue")
def kthvalue(self: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along ``dim`` (k counts from 1) and its index; NaN counts as the largest.

    kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    Of equal elements the first index is returned; PyTorch returns any of them.
    """
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values = smallest(self, k, dim).amax(dim, keepdim=True)
    if self.is_floating_point() and keeps_nan():
        is_number = (~self.isnan()).sum(dim, keepdim=True) >= k
        values = torch.where(is_number, values, math.nan)
    indices = first_place(self, values, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
