"""Second sizes of a sample: which of its dimensions eager PyTorch takes at another size."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

import torch

from opbridge.proof.conformance.calls import Call

__all__ = ["Move", "enlarged", "moves_of"]

Move = frozenset[tuple[int, int]]
"""Dimensions that are doubled together, each as (tensor, axis)."""

_OF_MATRICES = (
    *("cholesky", "geqrf", "linalg", "logdet", "lu", "matrix_exp", "norm.nuc", "ormqr", "pinverse", "qr", "svd"),
    "triangular_solve",
)
"""How the names of linear algebra begin."""
_NOT_LARGER = frozenset({"svd_lowrank", "pca_lowrank", "linalg.tensorinv", "linalg.tensorsolve"})
"""A rank that is asked for must not grow; and matrices of more than two axes are others."""

_BATCH_NORMS = frozenset({"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"})


def moves_of(entry: str, call: Call) -> list[Move]:
    """The moves that eager PyTorch takes, one after the other and all at once.

    A dimension is tried by itself; one that is refused is tried together with all others of its size.
    """
    taken: list[Move] = []
    for move in _candidates(call):
        free = move - frozenset(itertools.chain.from_iterable(taken))
        if len(free) == len(move) and _has_meaning(entry, call, move) and enlarged(entry, call, [*taken, move]):
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
    if entry == "native_group_norm":  # Its sizes are numbers of the call, of which PyTorch checks none for no images.
        return False
    if entry.startswith("_segment_reduce"):  # The segments must lie in the data.
        axis = call.kwargs["axis"]
        together = all(((0, i) in move) == ((1, i) in move) for i in range(axis))
        return together and ((1, axis) not in move or ("lengths" in call.kwargs and (0, axis) in move))
    if entry == "nn.functional.embedding_bag":
        # Offsets that come twice are no longer in ascending order; the last one may be the number of indices.
        offsets, is_whole = call.kwargs.get("offsets"), call.kwargs.get("include_last_offset")
        moving = [call.tensors[i] for i, _ in move]
        return not any(tensor is offsets or (is_whole and not tensor.is_floating_point()) for tensor in moving)
    return True


def enlarged(entry: str, call: Call, moves: Sequence[Move]) -> Call | None:
    """The call with these dimensions at twice their size.

    None if eager PyTorch refuses it, or gives another number of results: a model has a fixed number of outputs.
    """
    moving = frozenset(itertools.chain.from_iterable(moves))
    is_of_matrices = entry.startswith(_OF_MATRICES) and entry not in _NOT_LARGER
    repeated = _repeated_matrix if is_of_matrices else _repeated
    tensors = [repeated(tensor, [axis for j, axis in moving if j == i]) for i, tensor in enumerate(call.tensors)]
    larger = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        with torch.no_grad():
            same_results = larger.results_count() == call.results_count()
    except Exception:  # An operator refuses sizes with whatever exception it likes.
        return None
    return larger if same_results else None


def _repeated(tensor: torch.Tensor, axes: Collection[int]) -> torch.Tensor:
    return tensor.repeat([2 if axis in axes else 1 for axis in range(tensor.dim())])


def _repeated_matrix(tensor: torch.Tensor, axes: Collection[int]) -> torch.Tensor:
    """Matrices that keep their rank, and stay positive definite: a tile of equal blocks is singular.

    Where both sizes are doubled, it is the Kronecker product of the matrix and ((1, 3/8), (3/8, 1)): its pivots are as
    far from ties as those of the matrix, and the singular values of the samples don't come to lie at their tolerances.
    Along one axis, there are the matrix and its mirror image.
    """
    own = [axis for axis in range(tensor.dim() - 2, tensor.dim()) if axis in axes]
    if tensor.dim() < 2 or not (tensor.is_floating_point() or tensor.is_complex()):
        return _repeated(tensor, axes)
    if len(own) == 2:
        matrices = _repeated(tensor, [axis for axis in axes if axis not in own])
        return torch.kron(matrices, torch.tensor([[1, 0.375], [0.375, 1]], dtype=tensor.dtype))
    larger = _repeated(tensor, axes)
    for axis in own:
        length = tensor.shape[axis]
        second = larger.narrow(axis, length, length)
        second.copy_(second.flip(-1 if axis == tensor.dim() - 2 else -2))
    return larger
