"""The Bessel function Y1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_j import BORDER, far, j1_near
from opbridge.catalog.formulas.series import at_least, chebyshev, in_working_precision

# Chebyshev coefficients, from 40 digits, of (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x over x² = 12.5 (1 + t).
_NEAR = (
    *(0.0531074450560213, 0.14189450894667655, -0.08834328868289824, 0.017111109934210778),
    *(-0.0017057852565133666, 0.000105257530278434, -4.44507526565354e-06, 1.3699277670028168e-07),
    *(-3.222883768023259e-09, 5.984534092223177e-11, -9.000965667133812e-13, 1.1194186560306676e-14),
    *(-1.1707921590181557e-16, 1.0444110354608508e-18),
)


@decomposition("aten::special_bessel_y1")
@in_working_precision
def special_bessel_y1(self: Tensor) -> Tensor:
    """Y1 of each element (DLMF 10.8.1); -inf at 0, NaN below.

    special_bessel_y1(Tensor self) -> Tensor
    """
    small = torch.where(self > BORDER, BORDER, at_least(self, 0.0))
    smooth = small * chebyshev(small * small * (2 / BORDER**2) - 1, _NEAR)
    singular = torch.log(small.clamp_min(torch.finfo(self.dtype).tiny)) * j1_near(small) - 1 / small
    _, distant = far(at_least(self, BORDER), 1)
    return torch.where(self < 0, math.nan, torch.where(self <= BORDER, smooth + 2 / math.pi * singular, distant))
