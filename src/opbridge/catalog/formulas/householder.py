"""Householder reflections of whole matrices, from which QR decompositions are computed.

A reflection is H = I - tau v vᵀ, where v consists of zeros, a 1, and the numbers that are stored in place of the
eliminated elements (LAPACK's ``geqrf``; Golub & Van Loan, "Matrix Computations", 4th edition, 5.1 and 5.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.formulas.repeat import repeat

__all__ = ["factored", "reflected", "reflection"]


def factored(a: Tensor) -> tuple[Tensor, Tensor]:
    """The QR decomposition as R and the vectors of reflections in one matrix, and their factors tau.

    Args:
        a: Matrices of shape (..., m, n).

    Returns:
        R on and above the diagonal with the vectors below it, of shape (..., m, n), and tau of shape (..., min(m, n)).
        Signs are those of LAPACK: a diagonal element of R has the opposite sign of the element that it replaces, unless
        there was nothing to eliminate.
    """
    rows = torch.arange(a.shape[-2]).unsqueeze(-1)
    columns = torch.arange(a.shape[-1])
    taus = a.new_zeros(*a.shape[:-2], torch.sym_min(a.shape[-2], a.shape[-1]))
    places = torch.arange(taus.shape[-1])

    def reflect(step: Tensor, a: Tensor, taus: Tensor) -> tuple[Tensor, Tensor]:
        column = a.index_select(-1, step.reshape(1))
        vector, tau, diagonal = reflection(torch.where(rows >= step, column, 0), rows == step)
        rest = a - tau * vector * (vector * a).sum(-2, keepdim=True)
        replaced = torch.where(rows == step, diagonal, torch.where(rows > step, vector, column))
        latest = torch.where(columns > step, rest, torch.where(columns == step, replaced, a))
        return latest, torch.where(places == step, tau[..., 0], taus)

    a, taus = repeat(taus.shape[-1], reflect, a, taus)
    return a, taus


def reflection(columns: Tensor, is_head: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The vector and the tau of the reflection that maps a column to a single nonzero element, and that element.

    Args:
        columns: Columns of shape (..., m, 1), with zeros in the rows that the reflection does not change.
        is_head: A mask of the element that stays nonzero.
    """
    scale = _largest(columns)
    head = torch.where(is_head, columns / scale, 0).sum(-2, keepdim=True)
    tail = torch.where(is_head, 0, columns / scale)
    length = _length(tail)
    is_done = length == 0
    left = torch.where(is_done, head, -torch.copysign(torch.hypot(head, length), head))
    tau = torch.where(is_done, 0, (left - head) / torch.where(is_done, 1, left))
    return torch.where(is_head, 1, tail / torch.where(is_done, 1, head - left)), tau, left * scale


def _length(vectors: Tensor) -> Tensor:
    """The Euclidean norm of columns, even if their squares overflow or underflow."""
    scale = _largest(vectors)
    return (vectors / scale).square().sum(-2, keepdim=True).sqrt() * scale


def _largest(vectors: Tensor) -> Tensor:
    """The largest magnitude in each column; 1 for a column of zeros."""
    largest = vectors.abs().amax(-2, keepdim=True)
    return torch.where(largest > 0, largest, 1)


def reflected(vectors: Tensor, taus: Tensor, others: Tensor, backwards: bool = False) -> Tensor:
    """Q times other matrices, where Q = H(1) H(2) ... is a product of reflections; Qᵀ times them if ``backwards``.

    Args:
        vectors: The first result of :func:`factored`, of shape (..., m, n); only elements below the diagonal are read.
        taus: The factors tau, of shape (..., k), where k is at most n.
        others: The other matrices, of shape (..., m, p).
        backwards: Whether to apply the reflections from the first to the last, instead of from the last to the first.
    """
    rows = torch.arange(vectors.shape[-2]).unsqueeze(-1)
    last = torch.full((), taus.shape[-1], dtype=torch.int64) - 1

    def reflect(step: Tensor, others: Tensor) -> tuple[Tensor]:
        place = step if backwards else last - step
        column = vectors.index_select(-1, place.reshape(1))
        vector = torch.where(rows == place, 1, torch.where(rows > place, column, 0))
        tau = taus.index_select(-1, place.reshape(1)).unsqueeze(-1)
        return (others - tau * vector * (vector * others).sum(-2, keepdim=True),)

    return repeat(taus.shape[-1], reflect, others)[0]
