"""The modified Bessel function K0, scaled."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_k import k0
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_scaled_modified_bessel_k0")
@in_working_precision
def special_scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """exp(x) K0(x) of each element; infinite at 0, NaN below.

    special_scaled_modified_bessel_k0(Tensor x) -> Tensor
    """
    return k0(x, is_scaled=True)
