"""Elements named by an index along one dimension."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::gather", overrides="PyTorch takes an empty index of any rank, GatherElements that of its input")
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """Nothing, in the shape of ``index``, where that is empty.

    gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor
    """
    if not any(isinstance(size, int) and size == 0 for size in index.shape):
        return NotImplemented
    return self.new_zeros(index.shape)
