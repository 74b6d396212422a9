"""Distances between the rows of one matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.ops.linalg.cdist import cdist_forward
from opbridge.spec import decomposition


def _pairs(count: int) -> tuple[Tensor, Tensor]:
    """The rows i < j of every pair, in the order (0, 1), (0, 2), ..., by the position of a pair alone."""
    position = torch.arange(count * (count - 1) // 2)
    width = 2 * count - 1
    root = torch.sqrt((width * width - 8 * position).to(torch.float64))
    first = ((width - root) / 2).to(torch.int64)

    def begin(row: Tensor) -> Tensor:
        return torch.div(row * (width - row), 2, rounding_mode="floor")

    # The root of a number beyond 2**53 may be off, by a row at most.
    first = torch.where(begin(first) > position, first - 1, first)
    first = torch.where(begin(first + 1) <= position, first + 1, first)
    return first, position - begin(first) + first + 1


@decomposition("aten::_pdist_forward")
def pdist_forward(self: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of the difference of every two rows of (N, M): (N (N - 1) / 2).

    _pdist_forward(Tensor self, float p=2.) -> Tensor
    """
    first, second = _pairs(self.shape[0])
    rows = self.index_select(0, first).unsqueeze(1), self.index_select(0, second).unsqueeze(1)
    return cdist_forward(*rows, p, 2).reshape(-1)
