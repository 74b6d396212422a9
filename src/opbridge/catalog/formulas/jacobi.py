"""Singular values and symmetric eigenvalues by Jacobi rotations of all rows at once, in disjoint pairs.

In each round every row has another partner, as in a tournament (Brent & Luk, "The solution of singular-value and
symmetric eigenvalue problems on multiprocessor arrays", 1985), so that a round needs only a few operations on whole
matrices. A sweep covers every pair once; 6 to 15 sweeps are typical.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.formulas.repeat import is_empty, repeat_while

__all__ = ["diagonalized", "orthogonalized"]

_MOST_SWEEPS = 40

Round = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def orthogonalized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate rows until they are orthogonal to each other (Hestenes, 1958).

    Args:
        rows: Matrices W of shape (..., n, m) with elements of magnitude about 1.

    Returns:
        The products V W, and the orthogonal matrices V of shape (..., n, n).
    """
    places = torch.arange(rows.shape[-2])

    def round_of(partners: Tensor, rows: Tensor, rotations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        others = rows.index_select(-2, partners)
        own = rows.square().sum(-1, keepdim=True)
        other = own.index_select(-2, partners)
        comes_first = (places < partners).unsqueeze(-1)
        product = torch.where((partners == places).unsqueeze(-1), 0, (rows * others).sum(-1, keepdim=True))
        # Both rows of a pair must use the same value, or their rotations would not match; engines sum rows differently.
        product = torch.where(comes_first, product, product.index_select(-2, partners))
        # Rows that are smaller than the rounding error of the largest row do not need to be orthogonal.
        limit = torch.maximum(own, other).sqrt() * own.amax(-2, keepdim=True).sqrt()
        sine, ratio, _ = _rotation(own, other, product, comes_first)
        return (
            _counts(product, limit),
            rows - sine * (others + ratio * rows),
            rotations - sine * (rotations.index_select(-2, partners) + ratio * rotations),
        )

    return _swept(round_of, rows, _identity(rows, rows.shape[-2]))


def diagonalized(a: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of symmetric matrices in any order, and the eigenvectors as rows (Jacobi, 1846).

    Args:
        a: Matrices of shape (..., n, n) with elements of magnitude about 1.
    """
    places = torch.arange(a.shape[-1])
    is_diagonal = places.unsqueeze(-1) == places

    def round_of(partners: Tensor, a: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        is_pair = (partners.unsqueeze(-1) == places) & ~is_diagonal
        comes_first = (places < partners).unsqueeze(-1)
        own = torch.where(is_diagonal, a, 0).sum(-1, keepdim=True)
        other = own.index_select(-2, partners)
        cross = torch.where(is_pair, a, 0).sum(-1, keepdim=True)
        # Both rows of a pair must use the same value, or their rotations would not match.
        cross = torch.where(comes_first, cross, cross.index_select(-2, partners))
        sine, ratio, tangent = _rotation(own, other, cross, comes_first)
        turned = a - sine * (a.index_select(-2, partners) + ratio * a)
        turned = turned - sine.mT * (turned.index_select(-1, partners) + ratio.mT * turned)
        turned = torch.where(is_pair, 0, torch.where(is_diagonal, own - tangent * cross, turned))
        return (
            _counts(cross, a.abs().amax(-2, keepdim=True).amax(-1, keepdim=True)),
            turned,
            vectors - sine * (vectors.index_select(-2, partners) + ratio * vectors),
        )

    a, vectors = _swept(round_of, a, _identity(a, a.shape[-1]))
    return a.diagonal(dim1=-2, dim2=-1), vectors


def _identity(like: Tensor, size: int) -> Tensor:
    return torch.eye(size, dtype=like.dtype).expand(*like.shape[:-2], size, size)


def _swept(round_of: Round, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Run rounds until a whole sweep has no significant rotations."""
    if is_empty(first):
        return first, second
    players = torch.full((), first.shape[-2], dtype=torch.int64)
    rounds = (players + players % 2 - 1).clamp(min=1)
    places = torch.arange(first.shape[-2])

    def play(number: Tensor, is_busy: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        counts, first, second = round_of(_partners(number % rounds, rounds, places), first, second)
        is_busy = is_busy | counts
        is_last = number % rounds == rounds - 1
        goes_on = (~is_last | is_busy) & (number + 1 < rounds * _MOST_SWEEPS)
        return goes_on, is_busy & ~is_last, first, second

    _, first, second = repeat_while(play, torch.zeros((), dtype=torch.bool), first, second)
    return first, second


def _partners(number: Tensor, rounds: Tensor, places: Tensor) -> Tensor:
    """The partner of each row: one row is fixed, and the others rotate. An unpaired row is its own partner."""
    mirrored = torch.remainder(number - places, rounds)
    met = torch.where(mirrored == places, rounds, mirrored)
    # This solves 2 i = number modulo the odd number of rounds.
    met = torch.where(places == rounds, torch.remainder(number * ((rounds + 1) // 2), rounds), met)
    return torch.where(met <= places.amax(), met, places)


def _rotation(own: Tensor, other: Tensor, cross: Tensor, comes_first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sine, the ratio sine / (1 + cosine), and the tangent of the rotation that makes ``cross`` zero.

    The smaller of the two angles is used (Golub & Van Loan, "Matrix Computations", 8.5.2). In the form
    row - sine (other row + ratio row) of the new row, small rotations have small errors (Rutishauser, 1966).
    """
    difference, double = other - own, cross + cross
    scale = torch.maximum(difference.abs(), double.abs())
    scale = torch.where(scale > 0, scale, 1)
    difference, double = difference / scale, double / scale
    is_positive = (difference > 0) | ((difference == 0) & comes_first)
    size = difference.abs() + (difference.square() + double.square()).sqrt()
    tangent = torch.where(is_positive, double, -double) / torch.where(size > 0, size, 1)
    cosine = (1 + tangent.square()).rsqrt()
    return tangent * cosine, tangent * cosine / (1 + cosine), tangent


def _counts(cross: Tensor, limit: Tensor) -> Tensor:
    """Whether any element is larger than the rounding error of ``limit``."""
    return (cross.abs() * (1 / torch.finfo(cross.dtype).eps) > limit).any()
