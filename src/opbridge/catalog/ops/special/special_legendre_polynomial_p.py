"""The Legendre polynomials."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate

_FAMILY = Family(first=(0, 1), slope=1, slope_rise=2, weight_rise=1, divisor_rise=1)


@translation("aten::special_legendre_polynomial_p")
def special_legendre_polynomial_p(x: Any, n: Any) -> Any:
    """The Legendre polynomial of degree n at x (DLMF 18.9); 0 for a degree below 0.

    special_legendre_polynomial_p(Tensor x, Tensor n) -> Tensor
    """
    return evaluate(_FAMILY, x, n)


@decomposition("aten::special_legendre_polynomial_p.x_scalar")
def special_legendre_polynomial_p_of_number(x: float, n: Tensor) -> Tensor:
    """The Legendre polynomial of every degree at one number.

    special_legendre_polynomial_p.x_scalar(Scalar x, Tensor n) -> Tensor
    """
    return torch.special.legendre_polynomial_p(as_tensor(x, n), n)


@decomposition("aten::special_legendre_polynomial_p.n_scalar")
def special_legendre_polynomial_p_of_degree(x: Tensor, n: float) -> Tensor:
    """The Legendre polynomial of one degree at every number.

    special_legendre_polynomial_p.n_scalar(Tensor x, Scalar n) -> Tensor
    """
    return torch.special.legendre_polynomial_p(x, as_tensor(n, x))
