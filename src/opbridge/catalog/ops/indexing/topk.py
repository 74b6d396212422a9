"""The largest or smallest elements."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::topk", overrides="torch's mapping does not support a tensor of rank 0")
def topk(self: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The element of a tensor of rank 0 and the index 0; other tensors are left to torch's mapping.

    topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)
    """
    return NotImplemented if self.dim() else (self.clone(), torch.zeros([], dtype=torch.int64))
