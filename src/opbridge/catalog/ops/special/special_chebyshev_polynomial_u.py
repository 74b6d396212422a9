"""The Chebyshev polynomials of the second kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate

_FAMILY = Family(first=(0, 2), slope=2, weight=1)


@translation("aten::special_chebyshev_polynomial_u")
def special_chebyshev_polynomial_u(x: Any, n: Any) -> Any:
    """The Chebyshev polynomial U of degree n at x (DLMF 18.9); 0 for a degree below 0.

    special_chebyshev_polynomial_u(Tensor x, Tensor n) -> Tensor
    """
    return evaluate(_FAMILY, x, n)


@decomposition("aten::special_chebyshev_polynomial_u.x_scalar")
def special_chebyshev_polynomial_u_of_number(x: float, n: Tensor) -> Tensor:
    """The Chebyshev polynomial U of every degree at one number.

    special_chebyshev_polynomial_u.x_scalar(Scalar x, Tensor n) -> Tensor
    """
    return torch.special.chebyshev_polynomial_u(as_tensor(x, n), n)


@decomposition("aten::special_chebyshev_polynomial_u.n_scalar")
def special_chebyshev_polynomial_u_of_degree(x: Tensor, n: float) -> Tensor:
    """The Chebyshev polynomial U of one degree at every number.

    special_chebyshev_polynomial_u.n_scalar(Tensor x, Scalar n) -> Tensor
    """
    return torch.special.chebyshev_polynomial_u(x, as_tensor(n, x))
