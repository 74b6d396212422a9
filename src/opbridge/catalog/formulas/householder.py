"""Householder's reflections, a whole matrix at a time: what QR decompositions are made of.

A reflection is H = I - tau v vᵀ, where v has zeros, then a 1, then the numbers that take the place of what it
annihilates (LAPACK's ``geqrf``; Golub & Van Loan, "Matrix Computations", 4th edition, 5.1 and 5.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.formulas.repeat import repeat

__all__ = ["factored", "reflected", "reflection"]


def factored(a: Tensor) -> tuple[Tensor, Tensor]:
    """R above and on the diagonal, the reflections' vectors below it; and their tau.

    Args:
        a: Matrices, of shape (..., m, n).

    Returns:
        Of shapes (..., m, n) and (..., min(m, n)). Signs are LAPACK's: a diagonal element of R has the opposite sign of
        the element that it replaces, unless there was nothing to annihilate.
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
    """The vector and the tau of the reflection that leaves one element of a column, and that element.

    Args:
        columns: Of shape (..., m, 1); zero where nothing is to be reflected.
        is_head: Which element is left.
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
    """The Euclidean length of columns; their squares may overflow or underflow."""
    scale = _largest(vectors)
    return (vectors / scale).square().sum(-2, keepdim=True).sqrt() * scale


def _largest(vectors: Tensor) -> Tensor:
    """The largest element of columns, in size; 1 for zeros."""
    largest = vectors.abs().amax(-2, keepdim=True)
    return torch.where(largest > 0, largest, 1)


def reflected(vectors: Tensor, taus: Tensor, others: Tensor, backwards: bool = False) -> Tensor:
    """Q times other matrices, where Q is the product H(1) H(2) ... of reflections; Qᵀ times them if ``backwards``.

    Args:
        vectors: As :func:`factored` leaves them, of shape (..., m, n); what lies on and above the diagonal is not read.
        taus: Of shape (..., k), where k is at most n.
        others: Of shape (..., m, p).
        backwards: Apply them from the first to the last, rather than from the last to the first.
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
