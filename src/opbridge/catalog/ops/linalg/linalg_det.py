"""Determinants in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for
from opbridge.catalog.formulas.repeat import is_empty


@decomposition("aten::_linalg_det", overrides="engines support Det only in float32")
@only_for(torch.float64)
def linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The determinant of each matrix as the product of the pivots, for float64, and the LU factorization.

    _linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)

    Each interchange of two rows changes the sign (Golub & Van Loan, "Matrix Computations", 3.2).
    """
    factors, pivots = torch.linalg.lu_factor(A)
    if is_empty(A):
        return A.new_ones(A.shape[:-2]), factors, pivots
    places = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)
    signs = torch.where(pivots == places, 1.0, -1.0).to(A.dtype)
    return (torch.diagonal(factors, dim1=-2, dim2=-1) * signs).prod(-1), factors, pivots
