"""The upper incomplete gamma function, regularized."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.incomplete_gamma import regularized
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::igammac")
@in_working_precision
def igammac(self: Tensor, other: Tensor) -> Tensor:
    """Q(a, x), the integral of t**(a - 1) exp(-t) from x to infinity, divided by the gamma function of a.

    igammac(Tensor self, Tensor other) -> Tensor
    """
    return regularized(self, other)[1]
