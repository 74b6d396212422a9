"""Finds second sizes of a sample: the dimensions that eager PyTorch accepts at another size."""

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
"""Prefixes of the names of linear algebra entries."""
_NOT_LARGER = frozenset({"svd_lowrank", "pca_lowrank", "linalg.tensorinv", "linalg.tensorsolve"})
"""Entries enlarged by plain repetition: the requested rank must not grow, or the matrices have more than two axes."""

_BATCH_NORMS = frozenset({"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"})


def moves_of(entry: str, call: Call) -> list[Move]:
    """The moves that eager PyTorch accepts, one after the other and all at once.

    Each dimension is tried alone; if it is rejected, it is tried together with all others of the same size.
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
    """False for sizes that PyTorch does not check but that are meaningless or cause out-of-bounds access."""
    if entry in _BATCH_NORMS:  # The statistics have one element per channel.
        channels = {(0, 1), *((i, 0) for i in range(1, len(call.tensors)))}
        return not move & channels or channels <= move
    if entry == "native_group_norm":  # The sizes are also arguments, which PyTorch does not check for an empty batch.
        return False
    if entry.startswith("_segment_reduce"):  # The segments must lie in the data.
        axis = call.kwargs["axis"]
        together = all(((0, i) in move) == ((1, i) in move) for i in range(axis))
        return together and ((1, axis) not in move or ("lengths" in call.kwargs and (0, axis) in move))
    if entry == "nn.functional.embedding_bag":
        # Repeated offsets would not be in ascending order; the last one may be the number of indices.
        offsets, is_whole = call.kwargs.get("offsets"), call.kwargs.get("include_last_offset")
        moving = [call.tensors[i] for i, _ in move]
        return not any(tensor is offsets or (is_whole and not tensor.is_floating_point()) for tensor in moving)
    return True


def enlarged(entry: str, call: Call, moves: Sequence[Move]) -> Call | None:
    """The call with these dimensions at twice their size.

    None if eager PyTorch rejects it or returns another number of results: a model has a fixed number of outputs.
    """
    moving = frozenset(itertools.chain.from_iterable(moves))
    is_of_matrices = entry.startswith(_OF_MATRICES) and entry not in _NOT_LARGER
    repeated = _repeated_matrix if is_of_matrices else _repeated
    tensors = [repeated(tensor, [axis for j, axis in moving if j == i]) for i, tensor in enumerate(call.tensors)]
    larger = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        with torch.no_grad():
            same_results = larger.results_count() == call.results_count()
    except Exception:  # Operators raise various types for sizes that they reject.
        return None
    return larger if same_results else None


def _repeated(tensor: torch.Tensor, axes: Collection[int]) -> torch.Tensor:
    return tensor.repeat([2 if axis in axes else 1 for axis in range(tensor.dim())])


def _repeated_matrix(tensor: torch.Tensor, axes: Collection[int]) -> torch.Tensor:
    """Enlarge matrices so that they keep full rank and stay positive definite; tiling equal blocks would be singular.

    If both sizes are doubled, the result is the Kronecker product of the matrix and ((1, 3/8), (3/8, 1)): its pivots
    are as far from ties as those of the matrix, and the samples' singular values stay away from their tolerances. If
    one size is doubled, the result is the matrix followed by its mirror image.
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
