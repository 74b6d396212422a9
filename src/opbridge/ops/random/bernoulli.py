"""Coins that fall on 1 with given probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::bernoulli", overrides="ONNX Runtime's Bernoulli gives 1 with the probability of 0")
def bernoulli(self: Tensor, *, generator: None = None) -> Tensor:
    """1 with the probability that each element is, otherwise 0.

    bernoulli(Tensor self, *, Generator? generator=None) -> Tensor
    """
    # Few types have a kernel for random numbers; float32 has more digits than a half's probability.
    kind = torch.float64 if self.dtype == torch.float64 else torch.float32
    return (torch.rand(self.shape, dtype=kind) < self.to(kind)).to(self.dtype)
