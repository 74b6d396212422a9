"""Second sizes of a sample: which of its dimensions eager PyTorch takes at another size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from opbridge.conformance.calls import Call

__all__ = ["Move", "enlarged", "moves_of"]

Move = frozenset[tuple[int, int]]
"""Dimensions that are doubled together, each as (tensor, axis)."""


def moves_of(call: Call) -> list[Move]:
    """The moves that eager PyTorch takes, one after the other and all at once.

    A dimension is tried by itself; one that is refused is tried together with all others of its size.
    """
    taken: list[Move] = []
    for move in _candidates(call):
        free = move - frozenset(itertools.chain.from_iterable(taken))
        if len(free) == len(move) and enlarged(call, [*taken, move]) is not None:
            taken.append(move)
    return taken


def _candidates(call: Call) -> Iterator[Move]:
    shapes = [tensor.shape for tensor in call.tensors]
    axes = [(i, axis) for i, shape in enumerate(shapes) for axis in range(len(shape)) if shape[axis] > 0]
    for place in axes:
        yield frozenset([place])
    for size in sorted({shapes[i][axis] for i, axis in axes}, reverse=True):
        group = [(i, axis) for i, axis in axes if shapes[i][axis] == size]
        if len(group) > 1:
            yield frozenset(group)
        for pair in itertools.islice(itertools.combinations(group, 2), 12):
            yield frozenset(pair)


def enlarged(call: Call, moves: Sequence[Move]) -> Call | None:
    """The call with these dimensions at twice their size.

    None if eager PyTorch refuses it, or gives another number of results: a model has a fixed number of outputs.
    """
    tensors = list(call.tensors)
    for i, axis in itertools.chain.from_iterable(moves):
        repeats = [2 if axis == other else 1 for other in range(tensors[i].dim())]
        tensors[i] = tensors[i].repeat(repeats)
    larger = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        with torch.no_grad():
            same_results = larger.results_count() == call.results_count()
    except Exception:  # An operator refuses sizes with whatever exception it likes.
        return None
    return larger if same_results else None
