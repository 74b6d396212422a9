"""The modified Bessel function K0."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_k import k0
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_modified_bessel_k0")
@in_working_precision
def special_modified_bessel_k0(x: Tensor) -> Tensor:
    """K0 of each element; infinite at 0, NaN below.

    special_modified_bessel_k0(Tensor x) -> Tensor
    """
    return k0(x, is_scaled=False)
