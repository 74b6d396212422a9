"""Slices combined with those of another tensor, by scatter_reduce."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::index_reduce")
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``self`` with every slice of ``source`` combined into the slice that ``index`` names.

    index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor
    """
    if self.dim() == 0:
        whole = torch.scatter_reduce(
            self.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self
        )
        return whole.reshape(())
    shape = [1] * self.dim()
    shape[dim] = -1
    place = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(self, dim, place, source, reduce, include_self=include_self)
