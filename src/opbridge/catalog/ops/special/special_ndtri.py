"""The quantile function of the normal distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.inverse_error import inverse_error
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_ndtri")
@in_working_precision
def special_ndtri(self: Tensor) -> Tensor:
    """The quantile function of the standard normal distribution; infinite at 0 and 1, NaN outside.

    special_ndtri(Tensor self) -> Tensor

    The result is sqrt(2) erfinv(2 p - 1); the tail is computed from 4 p (1 - p), which is accurate for small p.
    """
    tail = math.log(4) + torch.log(self) + torch.log1p(-self)
    return math.sqrt(2) * inverse_error(2 * self - 1, tail)
