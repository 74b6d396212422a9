"""Triangular linear systems: a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, translation
from opbridge.catalog.formulas.repeat import repeat
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::SolveTriangular", "solve_triangular.h")


@translation("aten::linalg_solve_triangular")
def linalg_solve_triangular(self: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """The solution X of A X = B or X A = B with a triangular A (.., n, n) and B (.., n, k) or (.., k, n).

    linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor
    """
    return custom_node("opbridge::SolveTriangular", self, B, upper=upper, left=left, unitriangular=unitriangular)


@body_for("opbridge::SolveTriangular")
def solve_triangular(a: Tensor, b: Tensor, upper: int, left: int, unitriangular: int) -> Tensor:
    """Substitution, one row of X per step (Golub & Van Loan, "Matrix Computations", 3.1.3).

    The other triangle of ``a`` is not read, nor is its diagonal if ``unitriangular`` is set.
    """
    if not left:
        return solve_triangular(a.mT, b.mT, not upper, 1, unitriangular).mT
    size = a.shape[-1]
    rows, last = torch.arange(size), torch.full((), size - 1, dtype=torch.int64)

    def substitute(step: Tensor, solved: Tensor) -> tuple[Tensor]:
        here = last - step if upper else step
        index = here.reshape(1)
        column = a.index_select(-1, index)
        row = solved.index_select(-2, index)
        if not unitriangular:
            row = row / column.index_select(-2, index)
        open_rows = rows < here if upper else rows > here
        column = torch.where(open_rows.unsqueeze(-1), column, 0.0)
        return (torch.where((rows == here).unsqueeze(-1), row, solved - column * row),)

    (solved,) = repeat(size, substitute, b + b.new_zeros((*a.shape[:-2], 1, 1)))
    return solved


@decomposition("aten::triangular_solve")
def triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """The solution X of A X = B, where ``self`` is B, and A, both broadcast to a common batch size.

    triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)
    -> (Tensor solution, Tensor cloned_coefficient)
    """
    batch = torch.broadcast_shapes(self.shape[:-2], A.shape[:-2])
    coefficient = A.expand(*batch, *A.shape[-2:]).clone()
    matrix, is_upper = (A.mT, not upper) if transpose else (A, upper)
    solution = torch.linalg.solve_triangular(matrix, self, upper=is_upper, unitriangular=unitriangular)
    return solution, coefficient
