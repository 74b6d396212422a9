"""The complementary error function, with its tail."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import at_least, in_working_precision


@decomposition("aten::erfc", overrides="torch's mapping is 1 - erf, which is 0 in the tail")
@in_working_precision
def erfc(self: Tensor) -> Tensor:
    """1 - erf(x), accurate also for small results.

    erfc(Tensor self) -> Tensor

    From 0.5 on the result is erfcx(x) exp(-x²). The square is split as x² = h² + (x - h) (x + h) with an h of few
    digits, because exp amplifies its rounding error (W. J. Cody, "Rational Chebyshev approximations for the error
    function", 1969).
    """
    size = torch.where(self > 32, 32.0, at_least(self, 0.5))
    coarse = torch.round(size * 64) / 64
    power = torch.exp(-coarse * coarse) * torch.exp(-(size - coarse) * (size + coarse))
    tail = torch.where(self > 32, 0, torch.special.erfcx(size) * power)
    return torch.where(self < 0.5, 1 - torch.erf(self), torch.where(self.isnan(), self, tail))
