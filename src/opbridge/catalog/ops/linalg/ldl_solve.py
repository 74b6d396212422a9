"""Linear systems by a factorization L D L^T: a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.repeat import is_empty, repeat, taken_along
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::LdlSolve", "ldl_solve.h")


@translation("aten::linalg_ldl_solve")
def linalg_ldl_solve(LD: Any, pivots: Any, B: Any, hermitian: bool = False) -> Any:
    """The solution X of A X = B, from the result of ``ldl_factor`` for A (.., n, n); B is (.., n, k).

    linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor
    """
    return custom_node("opbridge::LdlSolve", LD, pivots, B)


@body_for("opbridge::LdlSolve")
def ldl_solve(factor: Tensor, pivots: Tensor, b: Tensor) -> Tensor:
    """Substitution with L, the blocks of D, and L^T, one row per step (LAPACK's ``sytrs``)."""
    size = factor.shape[-1]
    x = b + b.new_zeros((*factor.shape[:-2], 1, 1))
    if is_empty(x):
        return x
    rows, last = torch.arange(size).unsqueeze(-1), torch.full((), size - 1, dtype=torch.int64)
    is_pair = (pivots < 0).unsqueeze(-1)
    # Blocks of two have two rows.
    is_first = is_pair & (is_pair.long().cumsum(-2) % 2 == 1)
    is_second = is_pair & ~is_first
    moved = rows + is_first
    targets = torch.where(is_second, moved, pivots.unsqueeze(-1).abs().long() - 1)

    def interchanged(x: Tensor, index: Tensor) -> Tensor:
        one, other = moved.index_select(-2, index), targets.index_select(-2, index)
        source = torch.where(rows == one, other, torch.where(rows == other, one, rows))
        return taken_along(x, source, -2)

    def multipliers(index: Tensor) -> Tensor:
        return torch.where(rows > moved.index_select(-2, index), factor.index_select(-1, index), 0.0)

    def forward(number: Tensor, x: Tensor) -> tuple[Tensor]:
        index = number.reshape(1)
        x = interchanged(x, index)
        return (x - multipliers(index) * x.index_select(-2, index),)

    def backward(number: Tensor, x: Tensor) -> tuple[Tensor]:
        index = (last - number).reshape(1)
        change = (multipliers(index) * x).sum(-2, keepdim=True)
        return (interchanged(torch.where(rows == index, x - change, x), index),)

    (x,) = repeat(size, forward, x)
    (x,) = repeat(size, backward, _by_blocks(factor, x, rows, last, is_first, is_second))
    return x


def _by_blocks(factor: Tensor, x: Tensor, rows: Tensor, last: Tensor, is_first: Tensor, is_second: Tensor) -> Tensor:
    """D^-1 x for all rows at once; as in LAPACK, 2 x 2 blocks are scaled by their off-diagonal element."""
    numbers = rows.squeeze(-1)
    following, preceding = torch.minimum(numbers + 1, last), (numbers - 1).clamp(min=0)

    def of_partner(values: Tensor) -> Tensor:
        return torch.where(is_first, values.index_select(-2, following), values.index_select(-2, preceding))

    diagonal = torch.where(rows == rows.mT, factor, 0.0).sum(-1, keepdim=True)
    below = torch.where(rows == rows.mT + 1, factor, 0.0).sum(-2).unsqueeze(-1)
    off_diagonal = torch.where(is_first, below, torch.where(is_second, below.index_select(-2, preceding), 1.0))
    scaled, own = x / off_diagonal, diagonal / off_diagonal
    other, paired = of_partner(own), of_partner(scaled)
    return torch.where(is_first | is_second, (other * scaled - paired) / (own * other - 1), x / diagonal)
