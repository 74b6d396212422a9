"""Samples of the geometric distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::geometric",
    overrides="torch's decomposition takes log1p of numbers that need none, and draws integers for integers",
)
def geometric(self: Tensor, p: float, *, generator: None = None) -> Tensor:
    """The number of trials up to the first success with probability ``p``.

    geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor

    The logarithm of a uniform number over that of 1 - p, rounded down, plus 1. Numbers that are drawn from [0, 1) are
    multiples of a power of 2 in float32, so that 1 minus such a number is exact and not 0.
    """
    drawn = 1 - torch.rand_like(self, dtype=torch.promote_types(self.dtype, torch.float32))
    return (torch.floor(torch.log(drawn) / math.log1p(-p)) + 1).to(self.dtype)
