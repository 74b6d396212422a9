"""The factorization L D L^T of symmetric indefinite matrices: a custom node with a kernel and a function body."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.repeat import repeat, taken_along
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::LdlFactor", "ldl_factor.h")

_GROWTH = (1 + math.sqrt(17)) / 8
"""Bunch and Kaufman's pivot threshold, which balances the element growth of steps of one and two columns."""


@translation("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(self: Any, hermitian: bool = False, check_errors: bool = False) -> Any:
    """L and D of each matrix (.., n, n) in one matrix, the interchanged rows, and the index of the first zero pivot.

    linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False)
    -> (Tensor LD, Tensor pivots, Tensor info)

    The form is that of LAPACK's ``sytrf`` for the lower triangle: D has blocks of one and two rows, and the two rows of
    a block have the same negative pivot. An engine cannot raise the error that ``check_errors`` requests.
    """
    return custom_node("opbridge::LdlFactor", self, num_outputs=3)


@body_for("opbridge::LdlFactor")
def ldl_factor(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Diagonal pivoting (Bunch and Kaufman, "Some stable methods ...", Math. Comp. 31, 1977; LAPACK's ``sytf2``).

    Each step eliminates one or two columns, individually for each matrix of a batch.
    """
    size = a.shape[-1]
    rows, columns = torch.arange(size).unsqueeze(-1), torch.arange(size)
    last = torch.full((), size - 1, dtype=torch.int64)

    def eliminate(number: Tensor, rest: Tensor, done: Tensor, pivots: Tensor, info: Tensor, place: Tensor) -> Any:
        # Loop-carried values do not broadcast, so the axes of size 1 are added here.
        at = place.unsqueeze(-1).unsqueeze(-1)
        here = torch.minimum(at, last)
        chosen, is_pair, is_zero = _pivot(rest, rows, here)
        moved = here + is_pair
        source = torch.where(rows == moved, chosen, torch.where(rows == chosen, moved, rows))
        rest = taken_along(taken_along(rest, source, -2), source.mT, -1)
        after = torch.minimum(here + 1, last)
        first, second, steps = _multipliers(rest, rows, here, after, is_pair, is_zero)
        block = rows <= moved
        left = torch.where(block, taken_along(rest, here, -1), first)
        right = torch.where(block, taken_along(rest, after, -1), second)
        lower = torch.where(columns == here, left, torch.where(is_pair & (columns == after), right, done))
        sign = torch.where(is_pair, -1, 1)
        is_here = (columns == here) | (is_pair & (columns == after))
        interchanged = torch.where(is_here[..., 0, :], (sign * (chosen + 1))[..., 0].int(), pivots)
        fails = (info == 0) & is_zero[..., 0, 0]
        active = at <= last
        flat = active[..., 0]
        return (
            rest - steps,
            torch.where(active, lower, done),
            torch.where(flat, interchanged, pivots),
            torch.where(flat[..., 0] & fails, (here + 1)[..., 0, 0].int(), info),
            (at + 1 + is_pair)[..., 0, 0],
        )

    symmetric = torch.where(rows >= columns, a, a.mT)
    pivots = torch.zeros(a.shape[:-1], dtype=torch.int32)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32)
    start = torch.zeros(a.shape[:-2], dtype=torch.int64)
    _, done, pivots, info, _ = repeat(size, eliminate, symmetric, a.new_zeros(a.shape), pivots, info, start)
    return done.tril(), pivots, info


def _pivot(rest: Tensor, rows: Tensor, here: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The row to interchange, whether two columns are eliminated, and whether there is nothing to eliminate."""
    column = taken_along(rest, here, -1).abs()
    diagonal = taken_along(column, here, -2)
    below = torch.where(rows > here, column, -1.0)
    largest = below.argmax(-2, keepdim=True)
    column_size = below.amax(-2, keepdim=True).clamp(min=0)
    other = taken_along(rest, largest, -1).abs()
    row_size = torch.where((rows >= here) & (rows != largest), other, 0.0).amax(-2, keepdim=True)
    is_zero = (torch.maximum(diagonal, column_size) == 0) | diagonal.isnan()
    # This order prevents overflow and underflow; for a ratio of 0 / 0 the first condition holds.
    ratio = column_size / row_size
    stays = (diagonal >= _GROWTH * column_size) | (diagonal >= _GROWTH * column_size * ratio)
    stays = stays | is_zero
    is_single = taken_along(other, largest, -2) >= _GROWTH * row_size
    return torch.where(stays, here, largest), ~stays & ~is_single, is_zero


def _multipliers(
    rest: Tensor, rows: Tensor, here: Tensor, after: Tensor, is_pair: Tensor, is_zero: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The columns of L below the block of D, and the update that is subtracted from the rest of the matrix."""
    open_rows = rows > here + is_pair
    left = torch.where(open_rows, taken_along(rest, here, -1), 0.0)
    right = torch.where(open_rows, taken_along(rest, after, -1), 0.0)
    block = taken_along(rest, here, -1)
    corner, off_diagonal = taken_along(block, here, -2), taken_along(block, after, -2)
    opposite = taken_along(taken_along(rest, after, -1), after, -2)
    single = torch.where(is_zero, left, left / torch.where(is_zero, 1.0, corner))
    scale = torch.where(is_pair, off_diagonal, 1.0)
    ratio, other_ratio = opposite / scale, corner / scale
    factor = torch.where(is_pair, 1 / (ratio * other_ratio - 1), 0.0) / scale
    first = torch.where(is_pair, factor * (ratio * left - right), single)
    second = factor * (other_ratio * right - left)
    steps = torch.where(is_zero, 0.0, left * first.mT) + torch.where(is_pair, right * second.mT, 0.0)
    return first, second, steps
