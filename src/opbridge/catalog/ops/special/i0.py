"""The modified Bessel function I0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_i import scaled_i0
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::i0")
@in_working_precision
def i0(self: Tensor) -> Tensor:
    """I0 of each element (DLMF 10.25); infinite on overflow, and NaN at infinity as in PyTorch.

    i0(Tensor self) -> Tensor
    """
    return torch.where(self.isinf(), math.nan, torch.exp(self.abs()) * scaled_i0(self))
