"""Second sizes of a sample: which of its dimensions eager PyTorch takes at another size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from opbridge.conformance.calls import Call

__all__ = ["Move", "enlarged", "moves_of"]

Move = frozenset[tuple[int, int]]
"""Dimensions that are doubled together, each as (tensor, axis)."""

_BATCH_NORMS = frozenset({"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"})


def moves_of(entry: str, call: Call) -> list[Move]:
    """The moves that eager PyTorch takes, one after the other and all at once.

    A dimension is tried by itself; one that is refused is tried together with all others of its size.
    """
    taken: list[Move] = []
    for move in _candidates(call):
        free = move - frozenset(itertools.chain.from_iterable(taken))
        if len(free) == len(move) and _has_meaning(entry, call, move) and enlarged(call, [*taken, move]) is not None:
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


def _has_meaning(entry: str, call: Call, move: Move) -> bool:
    """False for sizes that PyTorch does not check, though they mean nothing or lead it out of its tensors' memory."""
    if entry in _BATCH_NORMS:  # The statistics have an element for each channel.
        channels = {(0, 1), *((i, 0) for i in range(1, len(call.tensors)))}
        return not move & channels or channels <= move
    if entry == "nn.functional.embedding_bag":
        # Offsets that come twice are no longer in ascending order; the last one may be the number of indices.
        offsets, is_whole = call.kwargs.get("offsets"), call.kwargs.get("include_last_offset")
        moving = [call.tensors[i] for i, _ in move]
        return not any(tensor is offsets or (is_whole and not tensor.is_floating_point()) for tensor in moving)
    return True


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
