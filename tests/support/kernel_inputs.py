"""Inputs that a kernel must survive: other sizes, other contents, and other strides than those of a sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["Variant", "variants"]

FILLS = (np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0)
"""Numbers that boxes, points and images should not have."""

INTEGERS = (-1, 1000, 2**62, -(2**63))
"""Positions and sizes that no tensor has."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """The inputs of one call.

    Attributes:
        name: What differs from the sample.
        arrays: The inputs.
        is_defined: Whether the operator says what it returns for them, if it takes them.
        may_be_refused: Whether the operator need not take them.
    """

    name: str
    arrays: tuple[np.ndarray, ...]
    is_defined: bool = True
    may_be_refused: bool = True


def variants(arrays: Sequence[np.ndarray]) -> Iterator[Variant]:
    """The sample itself, then variants of it."""
    given = tuple(arrays)
    yield Variant("the sample", given, may_be_refused=False)
    yield Variant("strided", tuple(map(_strided, given)), may_be_refused=False)
    yield Variant("reversed", tuple(array[(slice(None, None, -1),) * array.ndim] for array in given), False)
    yield Variant("all zero", tuple(_filled(array, 0, 1) if _is_float(array) else array for array in given))
    yield from _other_sizes(given)
    for index, array in enumerate(given):
        for fill in FILLS if _is_float(array) else INTEGERS if array.dtype.kind == "i" else ():
            for every in (1, 3):
                changed = (*given[:index], _filled(array, fill, every), *given[index + 1 :])
                yield Variant(f"input {index} {'full' if every == 1 else 'in part'} of {fill}", changed, False)


def _other_sizes(given: tuple[np.ndarray, ...]) -> Iterator[Variant]:
    """All axes of one length cut to one element and to none, because they may have to agree; then each axis alone."""
    for length in sorted({size for array in given for size in array.shape}):
        for size in (0, 1):
            if size < length:
                cut = tuple(
                    _cut(array, [axis for axis in range(array.ndim) if array.shape[axis] == length], size)
                    for array in given
                )
                yield Variant(f"axes of {length} cut to {size}", cut)
    for index, array in enumerate(given):
        for axis in range(array.ndim):
            for size in (0, 1):
                if size < array.shape[axis]:
                    changed = (*given[:index], _cut(array, [axis], size), *given[index + 1 :])
                    yield Variant(f"axis {axis} of input {index} cut to {size}", changed)


def _cut(array: np.ndarray, axes: Sequence[int], size: int) -> np.ndarray:
    return np.ascontiguousarray(
        array[tuple(slice(size) if axis in axes else slice(None) for axis in range(array.ndim))]
    )


def _filled(array: np.ndarray, fill: float, every: int) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[::every] = fill
    return changed


def _strided(array: np.ndarray) -> np.ndarray:
    """The same numbers, every second of a larger array."""
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f"
