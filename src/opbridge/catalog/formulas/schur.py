"""Eigenvalues and eigenvectors of real nonsymmetric matrices by the real Schur form.

The steps are a reduction to Hessenberg form, sweeps of Francis's double-shift QR steps, and back substitution (Golub &
Van Loan, "Matrix Computations", 4th edition, 7.4 to 7.6), for all matrices of a batch at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.formulas.francis import francis_sweep
from opbridge.catalog.formulas.householder import reflection
from opbridge.catalog.formulas.repeat import repeat, repeat_while

__all__ = ["quasi_triangular", "triangular_eigenvectors", "triangular_pairs"]

_MOST_SWEEPS = 30
"""The maximum number of sweeps per eigenvalue; usually 2 are needed."""


def quasi_triangular(a: Tensor) -> tuple[Tensor, Tensor]:
    """T with blocks of one and two rows on its diagonal and zeros below, and an orthogonal Q, such that a = Q T Qᵀ.

    Args:
        a: Matrices of shape (..., n, n) with elements of magnitude about 1.
    """
    size = a.shape[-1]
    h, q = _hessenberg(a.reshape(-1, size, size))
    rows = torch.arange(size).unsqueeze(-1)
    limit = torch.full((), size, dtype=torch.int64) * _MOST_SWEEPS

    def sweep(number: Tensor, counts: Tensor, h: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        h, begin, last = _blocks(h, rows)
        is_whole = last - begin > 1
        counts = torch.where(is_whole & (rows == last), counts + 1, 0)
        is_active = is_whole & (rows < last)
        first = torch.where(is_active & (rows == begin), _first_columns(h, rows, last, counts), 0)
        h, q = francis_sweep(h, q, first, is_active.squeeze(-1))
        return is_active.any() & (number < limit), counts, h, q

    _, h, q = repeat_while(sweep, torch.zeros_like(h[..., :1], dtype=torch.int64), h, q)
    return h.reshape(a.shape), q.reshape(a.shape)


def _hessenberg(a: Tensor) -> tuple[Tensor, Tensor]:
    """The Hessenberg form, which has one diagonal below the main diagonal, and Q."""
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
    """H A H for a reflection H."""
    return _from_the_right(a - tau * vector * (vector * a).sum(-2, keepdim=True), vector, tau)


def _diagonals(h: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The diagonals: in row i the elements h[i, i], h[i, i-1] and h[i-1, i], or 0 if they do not exist."""
    columns = rows.mT
    return (
        torch.where(rows == columns, h, 0).sum(-1, keepdim=True),
        torch.where(rows == columns + 1, h, 0).sum(-1, keepdim=True),
        torch.where(rows + 1 == columns, h, 0).sum(-2, keepdim=True).mT,
    )


def _neighbours(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The values in the previous row and in the next row; at the edges, those of the row itself."""
    earlier, later = (rows - 1).clamp(min=0), torch.minimum(rows + 1, rows.amax())
    return values.index_select(-2, earlier.squeeze(-1)), values.index_select(-2, later.squeeze(-1))


def _blocks(h: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """H without negligible elements below its diagonal, and the first and last rows of each row's block."""
    diagonal, below, _ = _diagonals(h, rows)
    sizes = diagonal.abs() + _neighbours(diagonal, rows)[0].abs()
    # NaN elements belong to no block, so they cause no sweeps.
    is_linked = below.abs() * (1 / torch.finfo(h.dtype).eps) > sizes
    h = torch.where(~is_linked & (rows == rows.mT + 1), 0, h)
    is_last = ~_neighbours(is_linked, rows)[1]
    begin = torch.where((rows.mT <= rows) & ~is_linked.mT, rows.mT, 0).amax(-1, keepdim=True)
    last = torch.where((rows.mT >= rows) & is_last.mT, rows.mT, rows.amax()).amin(-1, keepdim=True)
    return h, begin, last


def _first_columns(h: Tensor, rows: Tensor, last: Tensor, count: Tensor) -> Tensor:
    """For each row where a block begins, a multiple of the first column of (H - s)(H - t); of shape (..., n, 3).

    s and t are the eigenvalues of the block's last two rows, or occasionally other shifts (Wilkinson).
    """
    diagonal, below, above = _diagonals(h, rows)
    before_last = (last - 1).clamp(min=0)
    low, high = diagonal.gather(-2, last), diagonal.gather(-2, before_last)
    product = below.gather(-2, last) * above.gather(-2, last)
    size = below.gather(-2, last).abs() + below.gather(-2, before_last).abs()
    is_stuck = count.gather(-2, last) % 10 == 9
    product = torch.where(is_stuck, -0.4375 * size * size, product)
    high = torch.where(is_stuck, low + 0.75 * size, high)
    low = torch.where(is_stuck, low + 0.75 * size, low)
    (_, following), (_, link), (_, upper) = (_neighbours(part, rows) for part in (diagonal, below, above))
    scale = (diagonal - low).abs() + (diagonal - high).abs() + product.abs().sqrt() + link.abs()
    scale = torch.where(scale == 0, 1, scale)
    first = (diagonal - low) * ((diagonal - high) / scale) - product / scale + link / scale * upper
    second = link / scale * (diagonal + following - low - high)
    return torch.cat([first, second, link / scale * _neighbours(link, rows)[1]], -1)


def triangular_pairs(
    h: Tensor, q: Tensor
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The eigenvalues (..., n, 1), the complex triangular form, and its basis, each as real and imaginary parts.

    All blocks of two rows are rotated independently at the same time.
    """
    rows = torch.arange(h.shape[-1]).unsqueeze(-1)
    diagonal, below, above = _diagonals(h, rows)
    is_second = below != 0
    is_first = _neighbours(is_second, rows)[1] & (rows < rows.amax())
    a = torch.where(is_second, _neighbours(diagonal, rows)[0], diagonal)
    b, c, d = (torch.where(is_first, _neighbours(part, rows)[1], part) for part in (above, below, diagonal))
    half = (a - d) / 2
    square = half * half + b * c
    is_real, root = square >= 0, square.abs().sqrt()
    # u = (eigenvalue - d, c) is an eigenvector of the block; the sign avoids cancellation.
    real = torch.where(is_real, half + torch.copysign(root, half), half)
    imaginary = torch.where(is_real, 0, root)
    is_single = ~is_first & ~is_second
    # The squares in a tiny block underflow to zero.
    size = torch.maximum(torch.maximum(real.abs(), imaginary.abs()), c.abs())
    size = torch.where(is_single | (size == 0), 1, size)
    length = ((real / size).square() + (imaginary / size).square() + (c / size).square()).sqrt() * size
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
    """The eigenvectors of complex triangular matrices as columns of any length, as real and imaginary parts.

    A single back substitution computes all of them row by row, and scales down columns that grow. Eigenvalues that are
    equal within rounding are treated as differing by the rounding error, as in LAPACK's ``trevc``.

    Args:
        values: The eigenvalues on the diagonal, of shape (..., n, 1).
        upper: The triangular matrices, of shape (..., n, n); elements below the diagonal are not read.
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
