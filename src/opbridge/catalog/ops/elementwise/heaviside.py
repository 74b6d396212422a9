"""Heaviside's step function."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::heaviside", overrides="PyTorch's is 0 for NaN")
def heaviside(self: Tensor, values: Tensor) -> Tensor:
    """1 above 0, ``values`` at 0, else 0.

    heaviside(Tensor self, Tensor values) -> Tensor
    """
    return torch.where(self == 0, values, (self > 0).to(self.dtype))
