"""The logarithm of the normal distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_log_ndtr", overrides="torch's loses the left tail, where 1 + erf is 0")
@in_working_precision
def special_log_ndtr(self: Tensor) -> Tensor:
    """The logarithm of the area under the standard normal curve up to each element.

    special_log_ndtr(Tensor self) -> Tensor

    Left of -1 by erfcx, which takes the square out of the logarithm.
    """
    left = torch.log(torch.special.erfcx(-self.clamp_max(-1) * math.sqrt(0.5)) / 2) - self * self / 2
    right = torch.log1p(-torch.special.erfcx(self.abs() * math.sqrt(0.5)) * torch.exp(-self * self / 2) / 2)
    middle = torch.log((1 + torch.erf(self.clamp(-1, 0) * math.sqrt(0.5))) / 2)
    return torch.where(self < -1, left, torch.where(self < 0, middle, right))
