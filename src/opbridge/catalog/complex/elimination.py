"""The LU factorization of complex matrices, on which linear systems and inverses are based, and determinants."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule
from opbridge.catalog.formulas.lu_pairs import lu_factor_pairs


@complex_rule("aten::linalg_lu_factor_ex")
def lu_factor(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix, the row interchanges, and the index of the first zero pivot."""
    if not pivot:
        return NotImplemented
    pairs, swaps, info = lu_factor_pairs(torch.stack(parts(A), -1))
    return torch.view_as_complex(pairs), swaps, info


@complex_rule("aten::lu_unpack")
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U; parts that are not requested are empty tensors."""
    real, imaginary = parts(LU_data)
    permutation, lower, upper = torch.lu_unpack(real, LU_pivots, unpack_data, unpack_pivots)
    permutation = joined(permutation, torch.zeros_like(permutation))
    if not unpack_data:
        nothing = torch.zeros_like(lower)
        return permutation, joined(lower, nothing), joined(upper, nothing)
    _, lower_too, upper_too = torch.lu_unpack(imaginary, LU_pivots, True, False)
    return permutation, joined(lower, lower_too.tril(-1)), joined(upper, upper_too)


@complex_rule("aten::_linalg_det")
def det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of the pivots; each interchange of two rows changes its sign."""
    factors, swaps, _ = torch.linalg.lu_factor_ex(A)
    diagonal = torch.diagonal(factors, dim1=-2, dim2=-1)
    return (diagonal * _signs(swaps, A)).prod(-1), factors, swaps


@complex_rule("aten::_linalg_slogdet")
def slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The determinant divided by its absolute value, and the logarithm of the absolute value."""
    factors, swaps, _ = torch.linalg.lu_factor_ex(A)
    diagonal = torch.diagonal(factors, dim1=-2, dim2=-1)
    return (torch.sgn(diagonal) * _signs(swaps, A)).prod(-1), diagonal.abs().log().sum(-1), factors, swaps


def _signs(swaps: Tensor, like: Tensor) -> Tensor:
    places = torch.arange(1, swaps.shape[-1] + 1, dtype=swaps.dtype)
    return torch.where(swaps == places, 1.0, -1.0).to(parts(like)[0].dtype)
