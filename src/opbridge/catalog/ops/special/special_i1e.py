"""The modified Bessel function I1, scaled."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_i import scaled_i1
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_i1e")
@in_working_precision
def special_i1e(self: Tensor) -> Tensor:
    """exp(-|x|) I1(x) of each element.

    special_i1e(Tensor self) -> Tensor
    """
    return scaled_i1(self)
