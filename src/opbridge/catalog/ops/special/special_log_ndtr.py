"""The logarithm of the normal cumulative distribution function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_log_ndtr", overrides="torch's mapping loses the left tail, where 1 + erf is 0")
@in_working_precision
def special_log_ndtr(self: Tensor) -> Tensor:
    """The logarithm of the cumulative distribution function of the standard normal distribution.

    special_log_ndtr(Tensor self) -> Tensor

    Below -1 it is computed with erfcx, which removes the square from the logarithm.
    """
    left = torch.log(torch.special.erfcx(-self.clamp_max(-1) * math.sqrt(0.5)) / 2) - self * self / 2
    right = torch.log1p(-torch.special.erfcx(self.abs() * math.sqrt(0.5)) * torch.exp(-self * self / 2) / 2)
    middle = torch.log((1 + torch.erf(self.clamp(-1, 0) * math.sqrt(0.5))) / 2)
    return torch.where(self < -1, left, torch.where(self < 0, middle, right))
