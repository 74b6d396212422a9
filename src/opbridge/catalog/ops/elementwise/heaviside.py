"""Heaviside's step function."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::heaviside", overrides="PyTorch's result for NaN is 0")
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """1 for positive elements, ``values`` at 0, otherwise 0.

    heaviside(Tensor self, Tensor values) -> Tensor
    """
    return torch.where(self == 0, values, (self > 0).to(self.dtype))
