"""Eigenvalues and eigenvectors of real matrices without symmetry, by the real Schur form.

Reduction to Hessenberg form, Francis's double-shift QR steps, and back substitution (Golub & Van Loan, "Matrix
Computations", 4th edition, 7.4 to 7.6), where a step works on whole matrices and on all matrices of a batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.numerics.householder import reflection
from opbridge.numerics.repeat import repeat, repeat_while

__all__ = ["quasi_triangular", "triangular_eigenvectors", "triangular_pairs"]

_MOST_STEPS = 30
"""Per eigenvalue and row; usually 2 or 3 are taken."""


def quasi_triangular(a: Tensor) -> tuple[Tensor, Tensor]:
    """T with blocks of one and two rows on its diagonal, and an orthogonal Q, where the given matrix is Q T Qᵀ.

    Args:
        a: Of shape (..., n, n), their elements about 1 in size. What is below a block is zero.
    """
    hessenberg, q = _hessenberg(a)
    size = torch.full((), a.shape[-1], dtype=torch.int64)
    rows = torch.arange(a.shape[-1]).unsqueeze(-1)
    nowhere = torch.full_like(a[..., :1, :1], -1, dtype=torch.int64)

    def step(number: Tensor, place: Tensor, last: Tensor, count: Tensor, h: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        is_new = place < 0
        h, begin, end = _block(h, rows, is_new)
        count = torch.where(is_new, torch.where(end == last, count + 1, 0), count)
        last = torch.where(is_new, end, last)
        place = torch.where(is_new, begin, place)
        is_inside = (rows >= place) & (rows <= torch.minimum(place + 2, last))
        bulge = torch.where(rows.mT == place - 1, h, 0).sum(-1, keepdim=True)
        column = torch.where(is_inside, torch.where(is_new, _first_column(h, rows, place, last, count), bulge), 0)
        vector, tau, _ = reflection(column, rows == place)
        is_gone = ~is_new & is_inside & (rows > place) & (rows.mT == place - 1)
        h = torch.where(is_gone, 0, _similar(h, vector, tau))
        place = torch.where(place >= last - 1, -1, place + 1)
        goes_on = (last >= 0).any() & (number < _MOST_STEPS * size * size)
        return goes_on, place, last, count, h, _from_the_right(q, vector, tau)

    *_, h, q = repeat_while(step, nowhere, nowhere, torch.zeros_like(nowhere), hessenberg, q)
    return h, q


def _hessenberg(a: Tensor) -> tuple[Tensor, Tensor]:
    """The form with one diagonal below the main one, and Q."""
    rows = torch.arange(a.shape[-1]).unsqueeze(-1)

    def reduce(step: Tensor, h: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        column = torch.where(rows > step, h.index_select(-1, step.reshape(1)), 0)
        vector, tau, _ = reflection(column, rows == step + 1)
        h = torch.where((rows.mT == step) & (rows > step + 1), 0, _similar(h, vector, tau))
        return h, _from_the_right(q, vector, tau)

    identity = torch.eye(a.shape[-1], dtype=a.dtype).expand(a.shape)
    h, q = repeat(torch.sym_max(a.shape[-1] - 2, 0), reduce, a, identity)
    return h, q


def _from_the_right(a: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    return a - tau * (a * vector.mT).sum(-1, keepdim=True) * vector.mT


def _similar(a: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    """H A H of a reflection H."""
    return _from_the_right(a - tau * vector * (vector * a).sum(-2, keepdim=True), vector, tau)


def _diagonals(h: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The main diagonal, the one below and the one above it: in row i h[i, i], h[i, i-1], h[i-1, i]; else 0."""
    columns = rows.mT
    return (
        torch.where(rows == columns, h, 0).sum(-1, keepdim=True),
        torch.where(rows == columns + 1, h, 0).sum(-1, keepdim=True),
        torch.where(rows + 1 == columns, h, 0).sum(-2, keepdim=True).mT,
    )


def _at(values: Tensor, rows: Tensor, place: Tensor) -> Tensor:
    return torch.where(rows == place, values, 0).sum(-2, keepdim=True)


def _block(h: Tensor, rows: Tensor, is_new: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The last block of more than two rows, -1 where there is none; negligible elements beside the diagonal are cut."""
    diagonal, below, _ = _diagonals(h, rows)
    earlier = (rows.squeeze(-1) - 1).clamp(min=0)
    sizes = diagonal.abs() + diagonal.abs().index_select(-2, earlier)
    is_small = is_new & (below.abs() * (1 / torch.finfo(h.dtype).eps) <= sizes)
    h = torch.where(is_small & (rows == rows.mT + 1), 0, h)
    is_linked = (below != 0) & ~is_small
    end = torch.where(is_linked & is_linked.index_select(-2, earlier), rows, -1).amax(-2, keepdim=True)
    begin = torch.where((rows <= end) & ~is_linked, rows, 0).amax(-2, keepdim=True)
    return h, begin, end


def _first_column(h: Tensor, rows: Tensor, begin: Tensor, last: Tensor, count: Tensor) -> Tensor:
    """The first column of (H - s)(H - t), s and t the eigenvalues of the last two rows; others at times (Wilkinson)."""
    diagonal, below, above = _diagonals(h, rows)
    low, high = _at(diagonal, rows, last), _at(diagonal, rows, last - 1)
    product = _at(below, rows, last) * _at(above, rows, last)
    size = _at(below, rows, last).abs() + _at(below, rows, last - 1).abs()
    is_stuck = count % 10 == 9
    product = torch.where(is_stuck, -0.4375 * size * size, product)
    high = torch.where(is_stuck, low + 0.75 * size, high)
    low = torch.where(is_stuck, low + 0.75 * size, low)
    head, following = _at(diagonal, rows, begin), _at(diagonal, rows, begin + 1)
    link = _at(below, rows, begin + 1)
    first = ((head - low) * (head - high) - product) / torch.where(link == 0, 1, link) + _at(above, rows, begin + 1)
    column = torch.where(rows == begin + 1, head + following - low - high, _at(below, rows, begin + 2))
    return torch.where(rows == begin, first, column)


def triangular_pairs(
    h: Tensor, q: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The eigenvalues (..., n, 1), the complex triangular form and its basis, each as real and imaginary part.

    Every block of two rows is rotated by itself, all at once.
    """
    rows = torch.arange(h.shape[-1]).unsqueeze(-1)
    diagonal, below, above = _diagonals(h, rows)
    earlier = (rows.squeeze(-1) - 1).clamp(min=0)
    later = torch.minimum(rows.squeeze(-1) + 1, rows.amax())
    is_second = below != 0
    is_first = is_second.index_select(-2, later) & (rows < rows.amax())
    a = torch.where(is_second, diagonal.index_select(-2, earlier), diagonal)
    b, c, d = (torch.where(is_first, part.index_select(-2, later), part) for part in (above, below, diagonal))
    half = (a - d) / 2
    square = half * half + b * c
    is_real, root = square >= 0, square.abs().sqrt()
    # u = (eigenvalue - d, c) is an eigenvector of the block; the sign avoids cancellation.
    real = torch.where(is_real, half + torch.copysign(root, half), half)
    imaginary = torch.where(is_real, 0, root)
    is_single = ~is_first & ~is_second
    length = (real.square() + imaginary.square() + c.square()).sqrt()
    length = torch.where(is_single | (length == 0), 1, length)
    sign = torch.where(is_second, -1, 1).to(h.dtype)
    own = torch.where(is_single, 1, real / length), torch.where(is_single, 0, sign * imaginary / length)
    other = torch.where(is_single, 0, sign * c / length)
    second = d - b * c / torch.where(real == 0, 1, real)
    real_values = torch.where(is_real, torch.where(is_first, d + real, second), d + half)
    values = torch.where(is_single, diagonal, real_values), torch.where(is_single, 0, sign * imaginary)
    partners = rows + is_first.to(torch.int64) - is_second.to(torch.int64)
    half_turned = _columns_turned(h, partners, own, other)
    turned = _rows_turned(half_turned, partners, own, other)
    return values, turned, _columns_turned(q, partners, own, other)


def _columns_turned(a: Tensor, partners: Tensor, own: tuple[Tensor, Tensor], other: Tensor) -> tuple[Tensor, Tensor]:
    real = a * own[0].mT + a.gather(-1, partners.mT.expand(a.shape)) * other.mT
    return real, a * own[1].mT


def _rows_turned(
    a: tuple[Tensor, Tensor], partners: Tensor, own: tuple[Tensor, Tensor], other: Tensor
) -> tuple[Tensor, Tensor]:
    indices = partners.expand(a[0].shape)
    real = own[0] * a[0] + own[1] * a[1] + other * a[0].gather(-2, indices)
    return real, own[0] * a[1] - own[1] * a[0] + other * a[1].gather(-2, indices)


def triangular_eigenvectors(values: tuple[Tensor, Tensor], upper: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The eigenvectors of complex triangular matrices as columns, of any length, as real and imaginary part.

    All of them by one back substitution, a row at a time; columns that grow are made smaller. Eigenvalues that are
    equal within rounding count as that much apart, as in LAPACK's ``trevc``.

    Args:
        values: The diagonal, of shape (..., n, 1).
        upper: Of shape (..., n, n); what lies below the diagonal is not read.
    """
    rows = torch.arange(upper[0].shape[-1]).unsqueeze(-1)
    last = rows.amax()
    size = torch.maximum(upper[0].abs(), upper[1].abs()).amax(-1, keepdim=True).amax(-2, keepdim=True)
    least = torch.where(size > 0, size, 1) / (1 / torch.finfo(size.dtype).eps)

    def substitute(step: Tensor, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
        place, columns = (last - step).reshape(1), rows.mT
        own = tuple(torch.where(columns > place, part.index_select(-2, place), 0) for part in upper)
        sum_real = own[0] @ real - own[1] @ imaginary
        sum_imaginary = own[0] @ imaginary + own[1] @ real
        gap = tuple(part.mT - part.index_select(-2, place) for part in values)
        is_close = gap[0].abs() + gap[1].abs() < least
        gap = torch.where(is_close, least, gap[0]), torch.where(is_close, 0, gap[1])
        square = gap[0] * gap[0] + gap[1] * gap[1]
        is_later = columns > place
        row_real = torch.where(is_later, (sum_real * gap[0] + sum_imaginary * gap[1]) / square, 0)
        row_imaginary = torch.where(is_later, (sum_imaginary * gap[0] - sum_real * gap[1]) / square, 0)
        row_real = torch.where(columns == place, 1, row_real)
        real = torch.where(rows == place, row_real, real)
        imaginary = torch.where(rows == place, row_imaginary, imaginary)
        largest = torch.maximum(real.abs(), imaginary.abs()).amax(-2, keepdim=True)
        largest = torch.where(largest > 1, largest, 1)
        return real / largest, imaginary / largest

    zeros = torch.zeros_like(upper[0])
    real, imaginary = repeat(upper[0].shape[-1], substitute, zeros, zeros)
    return real, imaginary
