"""The Bessel function J1."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_j import BORDER, far, j1_near
from opbridge.catalog.formulas.series import at_least, in_working_precision


@decomposition("aten::special_bessel_j1")
@in_working_precision
def special_bessel_j1(self: Tensor) -> Tensor:
    """J1 of each element (DLMF 10.2), an odd function.

    special_bessel_j1(Tensor self) -> Tensor
    """
    size = self.abs()
    distant, _ = far(at_least(size, BORDER), 1)
    result = torch.where(size <= BORDER, j1_near(size.clamp_max(BORDER)), distant)
    return torch.where(self < 0, -result, result)
