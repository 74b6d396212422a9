"""The lower incomplete gamma function, regularized."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.incomplete_gamma import regularized
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::igamma")
@in_working_precision
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """P(a, x), the integral of t**(a - 1) exp(-t) from 0 to x, divided by the gamma function of a.

    igamma(Tensor self, Tensor other) -> Tensor
    """
    return regularized(self, other)[0]
