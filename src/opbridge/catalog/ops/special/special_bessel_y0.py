"""The Bessel function Y0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_j import BORDER, far, j0_near
from opbridge.catalog.formulas.series import at_least, chebyshev, in_working_precision

# Chebyshev coefficients, from 40 digits, of Y0(x) - 2/pi log(x) J0(x) over x² = 12.5 (1 + t).
_NEAR = (
    *(0.20605257634092228, -0.13017522381095709, -0.291894720865317, 0.10268287966073635),
    *(-0.014279159901781987, 0.0011164629864165486, -5.677525113380376e-05, 2.0406703657627165e-06),
    *(-5.476431029755533e-08, 1.141220652090372e-09, -1.9021689490013906e-11, 2.5954970583106197e-13),
    *(-2.9540707750193604e-15, 2.848154182311252e-17),
)


@decomposition("aten::special_bessel_y0")
@in_working_precision
def special_bessel_y0(self: Tensor) -> Tensor:
    """Y0 of each element (DLMF 10.8.2); -inf at 0, NaN below.

    special_bessel_y0(Tensor self) -> Tensor
    """
    small = torch.where(self > BORDER, BORDER, at_least(self, 0.0))
    near = chebyshev(small * small * (2 / BORDER**2) - 1, _NEAR) + 2 / math.pi * torch.log(small) * j0_near(small)
    _, distant = far(at_least(self, BORDER), 0)
    return torch.where(self < 0, math.nan, torch.where(self <= BORDER, near, distant))
