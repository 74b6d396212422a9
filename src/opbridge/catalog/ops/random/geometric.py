"""Samples of the geometric distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::geometric", overrides="torch's decomposition computes log1p, and draws integers for integers")
def geometric(self: Tensor, p: float, *, generator: None = None) -> Tensor:
    """The number of trials up to the first success with probability ``p``.

    geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor

    The logarithm of a uniform number over that of 1 - p, rounded down, plus 1. 1 minus a number drawn from [0, 1) is
    such a number, and not 0.
    """
    drawn = 1 - torch.rand_like(self, dtype=torch.promote_types(self.dtype, torch.float32))
    return (torch.floor(torch.log(drawn) / math.log1p(-p)) + 1).to(self.dtype)
