"""The Cholesky factorization: a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.repeat import repeat
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Cholesky", "cholesky.h")


@translation("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(self: Any, upper: bool = False, check_errors: bool = False) -> Any:
    """The triangular factor of each matrix (.., n, n), and the order of its first minor that is not positive definite.

    linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)

    From that minor on, the factor is NaN. An engine cannot raise the error that ``check_errors`` requests.
    """
    return custom_node("opbridge::Cholesky", self, num_outputs=2, upper=upper)


@body_for("opbridge::Cholesky")
def cholesky(a: Tensor, upper: int) -> tuple[Tensor, Tensor]:
    """One column per step (Golub & Van Loan, "Matrix Computations", 4.2.5): n steps of n x n operations each.

    Only one triangle of ``a`` is read: the upper one if ``upper`` is set.
    """
    a = a.mT if upper else a
    rows = torch.arange(a.shape[-1])

    def eliminate(step: Tensor, rest: Tensor, factor: Tensor, info: Tensor) -> tuple[Tensor, ...]:
        index = step.reshape(1)
        column = rest.index_select(-1, index)
        square = column.index_select(-2, index)
        below = (rows > step).unsqueeze(-1)
        pivot = square.sqrt()
        column = torch.where(below, column / pivot, torch.where((rows == step).unsqueeze(-1), pivot, 0.0))
        fails = (info == 0) & ~(square > 0)[..., 0, 0]
        info = torch.where(fails, (step + 1).int(), info)
        return rest - column @ column.mT, torch.where(rows == step, column, factor), info

    none_failed = torch.zeros(a.shape[:-2], dtype=torch.int32)
    _, factor, info = repeat(a.shape[-1], eliminate, a, a.new_zeros(a.shape), none_failed)
    return factor.mT if upper else factor, info
