"""The modified Bessel function I0, scaled."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_i import scaled_i0
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_i0e")
@in_working_precision
def special_i0e(self: Tensor) -> Tensor:
    """exp(-|x|) I0(x) of each element.

    special_i0e(Tensor self) -> Tensor
    """
    return scaled_i0(self)
