"""The shifted Chebyshev polynomials of the third kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.orthogonal import Family, as_tensor, evaluate

_FAMILY = Family(first=(-1, 2), slope=2, weight=1, is_shifted=True)


@translation("aten::special_shifted_chebyshev_polynomial_v")
def special_shifted_chebyshev_polynomial_v(x: Any, n: Any) -> Any:
    """The Chebyshev polynomial V, shifted to [0, 1], of degree n at x (DLMF 18.9); 0 for a degree below 0.

    special_shifted_chebyshev_polynomial_v(Tensor x, Tensor n) -> Tensor
    """
    return evaluate(_FAMILY, x, n)


@decomposition("aten::special_shifted_chebyshev_polynomial_v.x_scalar")
def special_shifted_chebyshev_polynomial_v_of_number(x: float, n: Tensor) -> Tensor:
    """The Chebyshev polynomial V, shifted to [0, 1], of every degree at one number.

    special_shifted_chebyshev_polynomial_v.x_scalar(Scalar x, Tensor n) -> Tensor
    """
    return torch.special.shifted_chebyshev_polynomial_v(as_tensor(x, n), n)


@decomposition("aten::special_shifted_chebyshev_polynomial_v.n_scalar")
def special_shifted_chebyshev_polynomial_v_of_degree(x: Tensor, n: float) -> Tensor:
    """The Chebyshev polynomial V, shifted to [0, 1], of one degree at every number.

    special_shifted_chebyshev_polynomial_v.n_scalar(Tensor x, Scalar n) -> Tensor
    """
    return torch.special.shifted_chebyshev_polynomial_v(x, as_tensor(n, x))
