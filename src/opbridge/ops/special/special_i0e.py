"""The modified Bessel function I0, scaled."""

from __future__ import annotations

from torch import Tensor

from opbridge.numerics.bessel_i import scaled_i0
from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition


@decomposition("aten::special_i0e")
@in_working_precision
def special_i0e(self: Tensor) -> Tensor:
    """exp(-|x|) I0(x) of each element.

    special_i0e(Tensor self) -> Tensor
    """
    return scaled_i0(self)
