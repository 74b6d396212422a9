"""Diagonals."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping adds the other elements times 0, which is NaN if one of them is infinite"


@decomposition("aten::diagonal", overrides=_WHY)
@decomposition("aten::diagonal_copy", overrides=_WHY)
def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two axes, ``offset`` above the main diagonal, as the last axis.

    diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor
    diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor
    """
    moved = self.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    count = torch.sym_max(torch.sym_min(rows - max(-offset, 0), columns - max(offset, 0)), 0)
    first = offset if offset >= 0 else -offset * columns
    places = torch.arange(count) * (columns + 1) + first
    return moved.reshape(*moved.shape[:-2], rows * columns).index_select(-1, places)
