"""The spherical Bessel function j0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_spherical_bessel_j0")
@in_working_precision
def special_spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x of each element; 1 at 0, and 0 at infinity.

    special_spherical_bessel_j0(Tensor x) -> Tensor
    """
    ratio = torch.sin(x) / torch.where(x == 0, 1, x)
    return torch.where(x == 0, 1, torch.where(x.isinf(), 0, ratio))
