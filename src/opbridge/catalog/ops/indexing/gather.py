"""``gather`` with an empty index."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::gather", overrides="GatherElements requires an empty index to have the rank of its input")
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    """An empty tensor of the shape of an empty ``index``.

    gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor
    """
    if not any(isinstance(size, int) and size == 0 for size in index.shape):
        return NotImplemented
    return self.new_zeros(index.shape)
