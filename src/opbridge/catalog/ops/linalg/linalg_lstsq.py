"""Least squares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.ops.linalg.linalg_pinv import limit_of


@rewrite("torch.linalg.lstsq")
def linalg_lstsq(
    original: Callable[..., Any], input: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> Any:
    """The X of minimum norm that minimizes the norm of ``input`` X - B, with residuals, rank and singular values.

    linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution,
    Tensor residuals, Tensor rank, Tensor singular_values)

    The singular value decomposition gives it for every driver (Golub & Van Loan, "Matrix Computations", 5.5.1). The
    default driver and ``gels``, which assumes full rank, return no singular values: they use the much faster QR
    decomposition (5.3.2), the default driver only if it shows that the rank is full. Residuals are returned whenever
    PyTorch returns them for full rank; PyTorch omits them for a lower rank, which is known only at run time. Torch has
    no shape function for the operator.
    """
    rows, columns = input.shape[-2:]
    chosen = driver or "gelsy"
    is_vector = B.dim() == 1 or (input.dim() - 1 == B.dim() and B.shape == input.shape[:-1])
    right = B.unsqueeze(-1) if is_vector else B
    is_tall = statically_known_true(rows >= columns) and statically_known_true(columns > 0)
    if chosen in ("gels", "gelsy") and is_tall and not input.is_complex():
        solution, rank = _by_qr(input, right, rcond, chosen == "gelsy")
        return _results(input, right, solution, rank, input.new_empty(0), chosen, is_vector)
    if input.is_complex():
        values = torch.linalg.svdvals(input)
    else:
        left, values, adjoint = torch.linalg.svd(input, full_matrices=False)
    if rows == 0 or columns == 0:
        is_kept = torch.zeros_like(values, dtype=torch.bool)
    elif chosen == "gels":
        is_kept = torch.ones_like(values, dtype=torch.bool)
    else:
        rtol = None if rcond is None else torch.full((), rcond, dtype=values.dtype)
        is_kept = values > limit_of(values, torch.sym_max(rows, columns), None, rtol)
    if input.is_complex():
        # Only singular vectors of real matrices have a rule.
        solution = torch.linalg.pinv(input, rtol=0.0 if chosen == "gels" else rcond) @ right
    else:
        inverses = torch.where(is_kept, 1 / torch.where(is_kept, values, 1), 0)
        solution = adjoint.mH @ (inverses.unsqueeze(-1) * (left.mH @ right))
    singular = values if chosen in ("gelsd", "gelss") else values.new_empty(0)
    return _results(input, right, solution, is_kept.sum(-1), singular, chosen, is_vector)


def _results(
    input: Tensor, right: Tensor, solution: Tensor, rank: Tensor, singular: Tensor, driver: str, is_vector: bool
) -> Any:
    residuals = input.real.new_empty(0)
    if input.shape[-2] > input.shape[-1] and driver != "gelsy":
        residuals = (input @ solution - right).abs().square().sum(-2)
    rank = input.new_empty(0, dtype=torch.int64) if driver == "gels" else rank
    solution = solution.squeeze(-1) if is_vector else solution
    return torch.return_types.linalg_lstsq((solution, residuals, rank, singular))  # type: ignore[attr-defined]


def _by_qr(matrix: Tensor, right: Tensor, rcond: float | None, checks_rank: bool) -> tuple[Tensor, Tensor]:
    """The solution and the rank for a matrix with at least as many rows as columns."""
    rows, columns = matrix.shape[-2:]
    factors, taus = torch.geqrf(matrix)
    upper = factors[..., :columns, :].triu()
    turned = torch.ormqr(factors, taus, right.expand(*matrix.shape[:-2], *right.shape[-2:]), True, True)
    turned = turned[..., :columns, :]
    if not checks_rank:
        return torch.linalg.solve_triangular(upper, turned, upper=True), torch.empty(0)
    # The Frobenius norms bound the condition number; NaN and infinities of a singular matrix don't pass the test.
    inverse = torch.linalg.solve_triangular(upper, torch.eye(columns, dtype=upper.dtype).expand_as(upper), upper=True)
    condition = torch.linalg.matrix_norm(upper) * torch.linalg.matrix_norm(inverse)
    # The largest condition number of full rank. Not its inverse, which onnxscript's optimizer may replace by 0.
    most = 1 / torch.finfo(upper.dtype).eps / rows if rcond is None else 1 / rcond if rcond > 0 else math.inf
    limit = torch.scalar_tensor(most, dtype=upper.dtype)
    # Flat, because two branches must have the same strides.
    branches, operands = (_of_full_rank, _of_any_rank), (matrix, right, upper, turned, limit)
    solution, rank = torch.cond((condition < limit).all(), *branches, operands)
    return solution.reshape(turned.shape), rank


def _of_full_rank(matrix: Tensor, right: Tensor, upper: Tensor, turned: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    rank = torch.full(upper.shape[:-2], upper.shape[-1], dtype=torch.int64)
    return torch.linalg.solve_triangular(upper, turned, upper=True).flatten(), rank


def _of_any_rank(matrix: Tensor, right: Tensor, upper: Tensor, turned: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    left, values, adjoint = torch.linalg.svd(matrix, full_matrices=False)
    is_kept = values * limit > values.amax(-1, keepdim=True)
    inverses = torch.where(is_kept, 1 / torch.where(is_kept, values, 1), 0)
    return (adjoint.mH @ (inverses.unsqueeze(-1) * (left.mH @ right))).flatten(), is_kept.sum(-1)
