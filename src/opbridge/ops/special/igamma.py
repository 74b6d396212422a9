"""The lower incomplete gamma function, regularized."""

from __future__ import annotations

from torch import Tensor

from opbridge.numerics.incomplete_gamma import regularized
from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition


@decomposition("aten::igamma")
@in_working_precision
def igamma(self: Tensor, other: Tensor) -> Tensor:
    """P(a, x), the integral of t**(a - 1) exp(-t) from 0 to x over the gamma function of a.

    igamma(Tensor self, Tensor other) -> Tensor
    """
    return regularized(self, other)[0]
