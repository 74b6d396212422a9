"""The LU factorization of complex matrices as pairs of real numbers: a custom node with a function body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import opbridge.catalog.formulas.lu_pairs  # noqa: F401 - defines the operator
from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import Sample, body_for, translation
from opbridge.catalog.formulas.repeat import repeat
from opbridge.catalog.ops.linalg.lu_unpack import smaller


def _samples() -> Sequence[Sample]:
    generator = torch.Generator().manual_seed(0)
    return [
        Sample((torch.randn(*sizes, 2, generator=generator),), name=name)
        for name, sizes in (("a batch", (2, 5, 5)), ("tall", (6, 3)), ("wide", (3, 6)), ("one number", (1, 1)))
    ]


@translation("opbridge::lu_factor_pairs", samples=_samples)
def lu_factor_pairs(a: Any) -> Any:
    """L and U of each complex matrix in one matrix, the row interchanges, and the index of the first zero pivot.

    lu_factor_pairs(Tensor a) -> (Tensor, Tensor, Tensor)
    """
    return custom_node("opbridge::LuFactorPairs", a, num_outputs=3)


@body_for("opbridge::LuFactorPairs")
def factored_pairs(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian elimination with partial pivoting, one column per step; a pivot's size is |a| + |b|, as in LAPACK.

    Golub & Van Loan, "Matrix Computations", 3.4.1.
    """
    m, n = a.shape[-3:-1]
    count = smaller(m, n)
    rows, columns, pivots = torch.arange(m).unsqueeze(-1), torch.arange(n), torch.arange(count)

    def eliminate(step: Tensor, real: Tensor, imaginary: Tensor, swaps: Tensor, info: Tensor) -> tuple[Tensor, ...]:
        index = step.reshape(1)
        size = real.index_select(-1, index).abs() + imaginary.index_select(-1, index).abs()
        chosen = torch.where(rows >= step, size, -1.0).argmax(-2, keepdim=True)
        source = torch.where(rows == step, chosen, torch.where(rows == chosen, step, rows))
        lu = [part.gather(-2, source.expand(part.shape)) for part in (real, imaginary)]
        column = [part.index_select(-1, index) for part in lu]
        row = [part.index_select(-2, index) for part in lu]
        pivot = [part.index_select(-1, index) for part in row]
        is_zero = (pivot[0] == 0) & (pivot[1] == 0)
        # All elements below a zero pivot are zero.
        below = [
            torch.where(rows > step, torch.where(is_zero, whole, part), 0.0)
            for whole, part in zip(column, _divided(column, pivot, is_zero), strict=True)
        ]
        right = [torch.where(columns > step, part, 0.0) for part in row]
        product = below[0] * right[0] - below[1] * right[1], below[0] * right[1] + below[1] * right[0]
        is_factor = (columns == step) & (rows > step)
        results = (
            torch.where(is_factor, factor, part - term) for factor, part, term in zip(below, lu, product, strict=True)
        )
        fails = (info == 0) & is_zero[..., 0, 0]
        return (
            *results,
            torch.where(pivots == step, (chosen[..., 0] + 1).int(), swaps),
            torch.where(fails, (step + 1).int(), info),
        )

    swaps = torch.zeros((*a.shape[:-3], count), dtype=torch.int32)
    info = torch.zeros(a.shape[:-3], dtype=torch.int32)
    real, imaginary, swaps, info = repeat(count, eliminate, a.select(-1, 0), a.select(-1, 1), swaps, info)
    return torch.stack([real, imaginary], -1), swaps, info


def _divided(a: Sequence[Tensor], b: Sequence[Tensor], is_zero: Tensor) -> tuple[Tensor, Tensor]:
    """The quotient of complex numbers, scaled so that squares do not overflow."""
    scale = torch.where(is_zero, 1, torch.maximum(b[0].abs(), b[1].abs()))
    c, d = b[0] / scale, b[1] / scale
    square = torch.where(is_zero, 1, c * c + d * d)
    x, y = a[0] / scale, a[1] / scale
    return (x * c + y * d) / square, (y * c - x * d) / square
