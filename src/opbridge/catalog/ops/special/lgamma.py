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

    Over [1, 3) the two zeros are divided out, so that results near them keep their digits. From 3 on it is Stirling's
    formula (DLMF 5.11.1) with a fitted rest. Below 1 lgamma(x) = lgamma(x + 1) - log x, below 0 the reflection
    formula (DLMF 5.5.3), with sin taken of the distance to the nearest integer. A number as large as -inf is an
    integer, that is a pole.
    """
    is_negative = self < 0
    # z - 2, where adding to self first would round.
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
