"""The smaller of two numbers, where NaN means that a number is missing."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::fmin")
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """The smaller of both; NaN only where both are NaN.

    fmin(Tensor self, Tensor other) -> Tensor
    """
    dtype = torch.result_type(self, other)
    first, second = self.to(dtype), other.to(dtype)
    # A comparison with NaN is false, so a NaN in the first falls through to the second; NaN != NaN finds one there.
    return torch.where((first <= second) | (second != second), first, second)
