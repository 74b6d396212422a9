"""The maximum of two numbers that ignores NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::fmax")
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements; NaN only if both are NaN.

    fmax(Tensor self, Tensor other) -> Tensor
    """
    dtype = torch.result_type(self, other)
    first, second = self.to(dtype), other.to(dtype)
    # A comparison with NaN is false, so a NaN in ``self`` selects ``other``; NaN != NaN detects one in ``other``.
    return torch.where((first >= second) | (second != second), first, second)
