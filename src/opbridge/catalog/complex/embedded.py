"""Linear algebra of complex matrices by real matrices of twice the size.

Each number a + i b becomes the block ((a, -b), (b, a)), which adds and multiplies like the number. The inverse, the
exponential, the pseudoinverse, the polar factors and the square root of the real matrix therefore consist of such
blocks too. The same holds for its Cholesky factor, because the factor of the complex matrix has a real diagonal and
both are unique. Eigenvalues of Hermitian matrices and singular values occur twice. Vectors that are not unique cannot
be computed in this way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule
from opbridge.catalog.formulas.repeat import is_empty

__all__ = ["blocks_of", "from_blocks"]


def blocks_of(a: Tensor) -> Tensor:
    """The real matrices (.., 2 m, 2 n) of complex ones (.., m, n)."""
    real, imaginary = parts(a)
    if is_empty(a):
        return real.new_zeros((*a.shape[:-2], 2 * a.shape[-2], 2 * a.shape[-1]))
    both = torch.stack([torch.stack([real, -imaginary], -1), torch.stack([imaginary, real], -1)], -3)
    return both.flatten(-2).flatten(-3, -2)


def from_blocks(a: Tensor) -> Tensor:
    """The complex matrices (.., m, n) of real ones (.., 2 m, 2 n) that consist of such blocks."""
    return joined(a[..., ::2, ::2], a[..., 1::2, ::2])


def _with_real_diagonal(a: Tensor) -> Tensor:
    """Of Hermitian matrices, whose diagonal's imaginary part is not read."""
    real, imaginary = parts(a)
    places = torch.arange(a.shape[-1])
    return joined(real, torch.where(places.unsqueeze(-1) == places, 0, imaginary))


@complex_rule("aten::linalg_cholesky_ex")
def cholesky(self: Tensor, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The Cholesky factor."""
    factor, info = torch.linalg.cholesky_ex(blocks_of(_with_real_diagonal(self)), upper=upper)
    return from_blocks(factor), (info + 1) // 2


@complex_rule("aten::linalg_solve_triangular")
def solve_triangular(self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """The solution X of A X = B or X A = B, with rows divided by the diagonal to make the blocks triangular too."""
    if not left:
        return solve_triangular(self.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    places = torch.arange(self.shape[-1])
    is_diagonal = places.unsqueeze(-1) == places
    if not unitriangular:
        diagonal = self.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        self, B = self / diagonal, B / diagonal
    real, imaginary = parts(self)
    unit = joined(torch.where(is_diagonal, 1, real), torch.where(is_diagonal, 0, imaginary))
    return from_blocks(torch.linalg.solve_triangular(blocks_of(unit), blocks_of(B), upper=upper, unitriangular=True))


@complex_rule("aten::linalg_matrix_exp")
def matrix_exp(self: Tensor) -> Tensor:
    """The exponential of a matrix."""
    return from_blocks(torch.linalg.matrix_exp(blocks_of(self)))


@complex_rule("aten::linalg_svdvals")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values in descending order."""
    return torch.linalg.svdvals(blocks_of(A))[..., ::2]


@complex_rule("aten::linalg_eigvalsh")
def eigvalsh(self: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of Hermitian matrices in ascending order."""
    return torch.linalg.eigvalsh(blocks_of(_with_real_diagonal(self)), UPLO=UPLO)[..., ::2]


@complex_rule("aten::linalg_pinv.atol_rtol_tensor")
def pinv(self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """The pseudoinverse; singular values count as zero by the size of the complex matrix."""
    if rtol is None:
        real = parts(self)[0]
        one: Tensor = torch.ones((), dtype=real.dtype)
        rounding = one.mul(torch.sym_max(*self.shape[-2:])).mul(torch.finfo(real.dtype).eps)
        rtol = rounding if atol is None else torch.where(atol > 0, 0, rounding).to(real.dtype)
    matrix = _with_real_diagonal(self) if hermitian else self
    return from_blocks(torch.linalg.pinv(blocks_of(matrix), atol=atol, rtol=rtol, hermitian=hermitian))


@complex_rule("aten::linalg_matrix_sqrth")
def matrix_sqrth(self: Tensor) -> Tensor:
    """The positive definite square root."""
    return from_blocks(torch.ops.aten.linalg_matrix_sqrth.default(blocks_of(_with_real_diagonal(self))))


@complex_rule("aten::linalg_polar")
def polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """The polar factors."""
    unitary, definite = torch.ops.aten.linalg_polar.default(blocks_of(A))
    return from_blocks(unitary), from_blocks(definite)


@complex_rule("aten::_linalg_svd", "aten::_linalg_eigh", takes_overload=True)
def values_alone(overload: torch._ops.OpOverload, A: Tensor, *settings: Any, **named: Any) -> Any:
    """Singular values and eigenvalues without vectors."""
    names = [argument.name for argument in overload._schema.arguments[1:]]
    given = dict(zip(names, settings, strict=False)) | named
    if given.get("compute_uv", True) and given.get("compute_v", True):
        return NotImplemented
    nothing = A.new_empty(0)
    if "svd" in overload.name():
        return nothing, svdvals(A), nothing.clone()
    return eigvalsh(A, given.get("UPLO", "L")), nothing
