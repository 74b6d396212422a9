"""Elements added at the places that an index names."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::scatter_add", overrides="PyTorch takes rank 0 for a row of one, ScatterElements does not")
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """A tensor of rank 0, with every element of ``src`` added that ``index`` has a place for.

    scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
    """
    if self.dim() > 0:
        return NotImplemented
    return self.reshape(1).scatter_add(0, index.reshape(-1), src.reshape(-1)).reshape(())
