"""Writing to a diagonal."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::diagonal_scatter")
def diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``self`` with ``src`` on the diagonal of two axes, ``offset`` above the main diagonal.

    diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor
    """
    rank = self.dim()
    first, second = dim1 % rank, dim2 % rank
    order = [*(axis for axis in range(rank) if axis not in (first, second)), first, second]
    steps = torch.arange(src.shape[-1])
    indices = [None] * (rank - 2) + [steps + max(-offset, 0), steps + max(offset, 0)]
    result = torch.ops.aten.index_put.default(self.permute(order), indices, src)
    return result.permute([order.index(axis) for axis in range(rank)])
