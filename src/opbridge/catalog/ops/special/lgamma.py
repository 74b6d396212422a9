"""The logarithm of the gamma function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.log_gamma import stirling_rest, without_zeros
from opbridge.catalog.formulas.series import in_working_precision

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@decomposition("aten::lgamma")
@in_working_precision
def lgamma(self: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...

    lgamma(Tensor self) -> Tensor

    On [1, 3) the two zeros are factored out, so that results near them are accurate. From 3 on Stirling's formula (DLMF
    5.11.1) is used with a fitted remainder. Below 1 lgamma(x) = lgamma(x + 1) - log x, and below 0 the reflection
    formula (DLMF 5.5.3) is used, with the sine of the distance to the nearest integer. Large negative numbers and -inf
    are integers, and therefore poles.
    """
    is_negative = self < 0
    # This is z - 2 without the rounding of an addition to self.
    offset = torch.where(is_negative, -1 - self, torch.where(self < 1, self - 1, self - 2))
    near = offset * (offset + 1) * without_zeros(offset.clamp(-1, 1))
    z = offset.clamp_min(1) + 2
    far = (z - 0.5) * (torch.log(z) - 1) + (_HALF_LOG_2PI - 0.5) + stirling_rest(z)
    core = torch.where(offset < 1, near, far)
    distance = (self - torch.round(self)).abs()
    reflected = math.log(math.pi) - torch.log(torch.sin(math.pi * distance)) - core
    positive = torch.where(self < 1, core - torch.log(self), core)
    is_pole = is_negative & (torch.round(self) == self)
    return torch.where(is_pole, math.inf, torch.where(is_negative, reflected, positive))
