"""Linear systems by an LU factorization."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.repeat import is_empty


def _permuted(matrix: Tensor, permutation: Tensor, inverse: bool) -> Tensor:
    """The rows of ``matrix`` in the order of ``permutation`` (.., n, n) or its inverse.

    The rows are gathered, because a matrix product would convert infinity to NaN. The row numbers are computed by a
    sum, because ONNX Runtime's product with a transposed matrix does not support an empty batch.
    """
    permutation = permutation.real if permutation.is_complex() else permutation
    numbers = torch.arange(permutation.shape[-1], dtype=permutation.dtype)
    order = (permutation * numbers.unsqueeze(-1)).sum(-2) if inverse else (permutation * numbers).sum(-1)
    batch = torch.broadcast_shapes(matrix.shape[:-2], permutation.shape[:-2])
    sizes = (*batch, *matrix.shape[-2:])
    return matrix.expand(sizes).gather(-2, order.long().unsqueeze(-1).expand(sizes))


@decomposition("aten::linalg_lu_solve")
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The solution X of A X = B or X A = B, or with the adjoint of A, from the LU factorization of A (.., n, n).

    linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor
    """
    if is_empty(LU) or is_empty(B):
        return B.new_zeros((*torch.broadcast_shapes(LU.shape[:-2], B.shape[:-2]), *B.shape[-2:]))
    if not left:
        # X A = B is equivalent to A^H X^H = B^H.
        return linalg_lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    permutation = torch.lu_unpack(LU, pivots, unpack_data=False)[0]
    if not adjoint:
        solved = _permuted(B, permutation, inverse=True)
        solved = torch.linalg.solve_triangular(LU, solved, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(LU, solved, upper=True)
    solved = torch.linalg.solve_triangular(LU.mH, B, upper=False)
    solved = torch.linalg.solve_triangular(LU.mH, solved, upper=True, unitriangular=True)
    return _permuted(solved, permutation, inverse=False)


@decomposition("aten::_linalg_solve_ex")
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The solution X of A X = B or X A = B, the factorization of A, and the index of its first zero pivot.

    _linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)
    -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)
    """
    lu, pivots, info = torch.linalg.lu_factor_ex(A)
    is_vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if is_vector:
        return torch.linalg.lu_solve(lu, pivots, B.unsqueeze(-1), left=True).squeeze(-1), lu, pivots, info
    return torch.linalg.lu_solve(lu, pivots, B, left=left), lu, pivots, info


@decomposition("aten::linalg_inv_ex")
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The inverse of each matrix, and the index of its first zero pivot.

    linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)
    """
    lu, pivots, info = torch.linalg.lu_factor_ex(A)
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return torch.linalg.lu_solve(lu, pivots, identity.expand(A.shape)), info


@decomposition("aten::_linalg_slogdet")
def linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sign of each matrix's determinant, the logarithm of its absolute value, and the factorization of the matrix.

    _linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)
    """
    lu, pivots, _ = torch.linalg.lu_factor_ex(A)
    if is_empty(A):
        return A.new_ones(A.shape[:-2]), A.new_zeros(A.shape[:-2]), lu, pivots
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    swapped = (pivots != torch.arange(1, A.shape[-1] + 1, dtype=pivots.dtype)).sum(-1)
    turns = swapped + (diagonal < 0).sum(-1)
    sign = torch.where((diagonal == 0).sum(-1) > 0, 0.0, (1 - 2 * (turns % 2)).to(A.dtype))
    sign = torch.where(diagonal.isnan().sum(-1) > 0, torch.nan, sign)
    return sign, diagonal.abs().log().sum(-1), lu, pivots
