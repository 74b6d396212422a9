"""Least squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.ops.linalg.linalg_pinv import limit_of


@rewrite("torch.linalg.lstsq")
def linalg_lstsq(
    original: Callable[..., Any], input: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> Any:
    """The X of minimum norm that minimizes the norm of ``input`` X - B, with residuals, rank and singular values.

    linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution,
    Tensor residuals, Tensor rank, Tensor singular_values)

    Every driver uses the singular value decomposition (Golub & Van Loan, "Matrix Computations", 5.5.1); ``gels``
    assumes full rank. Residuals are returned whenever PyTorch returns them for full rank; PyTorch omits them for a
    lower rank, which is known only at run time. Torch has no shape function for the operator.
    """
    rows, columns = input.shape[-2:]
    chosen = driver or "gelsy"
    is_vector = B.dim() == 1 or (input.dim() - 1 == B.dim() and B.shape == input.shape[:-1])
    right = B.unsqueeze(-1) if is_vector else B
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
    residuals = input.real.new_empty(0)
    if rows > columns and chosen != "gelsy":
        residuals = (input @ solution - right).abs().square().sum(-2)
    rank = input.new_empty(0, dtype=torch.int64) if chosen == "gels" else is_kept.sum(-1)
    singular = values if chosen in ("gelsd", "gelss") else values.new_empty(0)
    solution = solution.squeeze(-1) if is_vector else solution
    return torch.return_types.linalg_lstsq((solution, residuals, rank, singular))  # type: ignore[attr-defined]
