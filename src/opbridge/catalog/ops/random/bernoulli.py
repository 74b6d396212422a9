"""Bernoulli samples."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::bernoulli", overrides="ONNX Runtime's Bernoulli returns 1 with the probability of 0")
def bernoulli(self: Tensor, p: Tensor | float | None = None, *, generator: None = None) -> Tensor:
    """1 with the probability given by each element or by ``p``, otherwise 0.

    bernoulli(Tensor self, *, Generator? generator=None) -> Tensor
    bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor
    bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor
    """
    chance = self if p is None else p
    # Engines have random kernels for few types; float32 has enough digits for a probability in float16.
    kind = torch.float64 if torch.float64 in (self.dtype, getattr(chance, "dtype", None)) else torch.float32
    chance = chance.to(kind) if isinstance(chance, Tensor) else chance
    return (torch.rand(self.shape, dtype=kind) < chance).to(self.dtype)
