"""The modified Bessel function I1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_i import scaled_i1
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_i1")
@in_working_precision
def special_i1(self: Tensor) -> Tensor:
    """I1 of each element (DLMF 10.25), an odd function; NaN at infinity as in PyTorch.

    special_i1(Tensor self) -> Tensor
    """
    return torch.where(self.isinf(), math.nan, torch.exp(self.abs()) * scaled_i1(self))
