"""The modified Bessel function K1."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.bessel_k import k1
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::special_modified_bessel_k1")
@in_working_precision
def special_modified_bessel_k1(x: Tensor) -> Tensor:
    """K1 of each element; infinite at 0, NaN below.

    special_modified_bessel_k1(Tensor x) -> Tensor
    """
    return k1(x, is_scaled=False)
