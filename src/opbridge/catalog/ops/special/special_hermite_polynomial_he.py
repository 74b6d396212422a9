"""The Hermite polynomials of the probabilists."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate

_FAMILY = Family(first=(0, 1), slope=1, weight_rise=1, limits=(128, 512))


@translation("aten::special_hermite_polynomial_he")
def special_hermite_polynomial_he(x: Any, n: Any) -> Any:
    """The Hermite polynomial He of degree n at x (DLMF 18.9); 0 for a degree below 0.

    special_hermite_polynomial_he(Tensor x, Tensor n) -> Tensor
    """
    return evaluate(_FAMILY, x, n)


@decomposition("aten::special_hermite_polynomial_he.x_scalar")
def special_hermite_polynomial_he_of_number(x: float, n: Tensor) -> Tensor:
    """The Hermite polynomial He of every degree at one number.

    special_hermite_polynomial_he.x_scalar(Scalar x, Tensor n) -> Tensor
    """
    return torch.special.hermite_polynomial_he(as_tensor(x, n), n)


@decomposition("aten::special_hermite_polynomial_he.n_scalar")
def special_hermite_polynomial_he_of_degree(x: Tensor, n: float) -> Tensor:
    """The Hermite polynomial He of one degree at every number.

    special_hermite_polynomial_he.n_scalar(Tensor x, Scalar n) -> Tensor
    """
    return torch.special.hermite_polynomial_he(x, as_tensor(n, x))
