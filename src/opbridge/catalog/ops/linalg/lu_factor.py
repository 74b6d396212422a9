"""The LU factorization with row interchanges: a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, translation
from opbridge.catalog.formulas.repeat import repeat
from opbridge.catalog.ops.linalg.lu_unpack import smaller
from opbridge.errors import TranslationError
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::LuFactor", "lu_factor.h")


@translation("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(A: Any, pivot: bool = True, check_errors: bool = False) -> Any:
    """L and U of each matrix (.., m, n) in one matrix, the row interchanges, and the index of the first zero pivot.

    linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)
    -> (Tensor LU, Tensor pivots, Tensor info)

    Rows and the zero pivot count from 1, as in LAPACK. An engine cannot raise the error that ``check_errors`` requests.
    """
    if not pivot:
        raise TranslationError(
            "torch.linalg.lu_factor with pivot=False has no mapping to ONNX; PyTorch has it on CUDA alone.",
            fix="factor with pivot=True.",
        )
    return custom_node("opbridge::LuFactor", A, num_outputs=3)


@body_for("opbridge::LuFactor")
def lu_factor(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian elimination with partial pivoting, one column per step.

    Golub & Van Loan, "Matrix Computations", 3.4.1.
    """
    m, n = a.shape[-2:]
    count = smaller(m, n)
    rows, columns, pivots = torch.arange(m).unsqueeze(-1), torch.arange(n), torch.arange(count)

    def eliminate(step: Tensor, lu: Tensor, swaps: Tensor, info: Tensor) -> tuple[Tensor, ...]:
        index = step.reshape(1)
        size = torch.where(rows >= step, lu.index_select(-1, index).abs(), -1.0)
        chosen = size.argmax(-2, keepdim=True)
        source = torch.where(rows == step, chosen, torch.where(rows == chosen, step, rows))
        lu = lu.gather(-2, source.expand(lu.shape))
        column, row = lu.index_select(-1, index), lu.index_select(-2, index)
        pivot = row.index_select(-1, index)
        # All elements below a zero pivot are zero.
        factor = torch.where(rows > step, torch.where(pivot == 0, column, column / pivot), 0.0)
        eliminated = lu - factor * torch.where(columns > step, row, 0.0)
        fails = (info == 0) & (pivot == 0)[..., 0, 0]
        return (
            torch.where((columns == step) & (rows > step), factor, eliminated),
            torch.where(pivots == step, (chosen[..., 0] + 1).int(), swaps),
            torch.where(fails, (step + 1).int(), info),
        )

    swaps = torch.zeros((*a.shape[:-2], count), dtype=torch.int32)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32)
    lu, swaps, info = repeat(count, eliminate, a, swaps, info)
    return lu, swaps, info


@decomposition("aten::linalg_lu")
def linalg_lu(A: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The permutation P, L and U of each matrix: A = P L U.

    linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)
    """
    lu, swaps, _ = torch.linalg.lu_factor_ex(A, pivot=pivot)
    return torch.lu_unpack(lu, swaps)
