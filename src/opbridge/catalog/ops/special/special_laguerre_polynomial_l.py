"""The Laguerre polynomials."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate

_FAMILY = Family(first=(1, -1), constant=1, constant_rise=2, slope=-1, weight_rise=1, divisor_rise=1)


@translation("aten::special_laguerre_polynomial_l")
def special_laguerre_polynomial_l(x: Any, n: Any) -> Any:
    """The Laguerre polynomial of degree n at x (DLMF 18.9); 0 for a degree below 0.

    special_laguerre_polynomial_l(Tensor x, Tensor n) -> Tensor
    """
    return evaluate(_FAMILY, x, n)


@decomposition("aten::special_laguerre_polynomial_l.x_scalar")
def special_laguerre_polynomial_l_of_number(x: float, n: Tensor) -> Tensor:
    """The Laguerre polynomial of every degree at one number.

    special_laguerre_polynomial_l.x_scalar(Scalar x, Tensor n) -> Tensor
    """
    return torch.special.laguerre_polynomial_l(as_tensor(x, n), n)


@decomposition("aten::special_laguerre_polynomial_l.n_scalar")
def special_laguerre_polynomial_l_of_degree(x: Tensor, n: float) -> Tensor:
    """The Laguerre polynomial of one degree at every number.

    special_laguerre_polynomial_l.n_scalar(Tensor x, Scalar n) -> Tensor
    """
    return torch.special.laguerre_polynomial_l(x, as_tensor(n, x))
