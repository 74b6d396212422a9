"""The Bessel function J0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_j import BORDER, far, j0_near
from opbridge.catalog.formulas.series import at_least, in_working_precision


@decomposition("aten::special_bessel_j0")
@in_working_precision
def special_bessel_j0(self: Tensor) -> Tensor:
    """J0 of each element (DLMF 10.2), an even function.

    special_bessel_j0(Tensor self) -> Tensor
    """
    size = self.abs()
    distant, _ = far(at_least(size, BORDER), 0)
    result = torch.where(size <= BORDER, j0_near(size.clamp_max(BORDER)), distant)
    return result
