"""Uniform random numbers in the shape of a tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::uniform")
def uniform(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Tensor:
    """Numbers drawn from the uniform distribution on [low, high).

    uniform(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor
    """
    return torch.rand_like(self) * (high - low) + low
