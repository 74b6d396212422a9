"""The k-th smallest element, by sorting."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::kthvalue")
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along ``dim`` (k counts from 1) and its position; NaN counts as the largest.

    kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    Among equal elements the first is named; PyTorch names any of them.
    """
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(self, dim=dim, stable=True)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
