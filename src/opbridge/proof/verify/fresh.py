"""Creates a fresh tensor that has the range, the distribution, the order and the structure of an example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from opbridge.proof.verify.index_columns import OFFSETS

__all__ = [
    "EXAMPLE_RANGE",
    "EXAMPLE_ROWS",
    "EXAMPLE_VALUES",
    "LENGTHS",
    "WIDE_RANGE",
    "fresh_tensor",
    "lengths_up_to",
]

WIDE_RANGE = 0
"""Constant integer examples (zeros, ones, a count) get other values too, indices any row of their table."""
EXAMPLE_RANGE = 1
"""Integers stay within the example's range."""
EXAMPLE_VALUES = 2
"""The example's own values in random order, for models that refuse all other values."""
LENGTHS = 3
"""The same, but integers whose maximum is a dynamic size count up to the new size: the lengths of padded sequences."""
EXAMPLE_ROWS = 4
"""The example's rows and columns, repeated, for models that take only what belongs together, such as whole boxes."""

_MOST_VALUES = 1 << 16
_CHANNELS, _SHORTEST_SIDE = (1, 3, 4), 8
_MASKED = -1e3


def fresh_tensor(
    example: torch.Tensor,
    shape: tuple[int, ...],
    random: np.random.Generator,
    scale: int,
    rows: int | None = None,
    columns: Mapping[int | None, int | None] | None = None,
) -> Any:
    """A tensor of the example's dtype.

    Args:
        example: The tensor whose statistics are kept. Floating-point numbers follow its distribution and stay in its
            range, integers stay between its minimum and maximum, booleans have both values. Rows that are sorted, that
            sum to one, or that are boxes (x1, y1, x2, y2) keep this property, and so do symmetric and positive definite
            matrices. An additive mask (zeros and large negative numbers) has a zero in every row, and an image fills
            the range of its type.
        shape: The shape of the new tensor.
        random: The source of all random numbers.
        scale: How far the values may differ from the example's: one of the constants of this module.
        rows: The number of rows of the table, if the example is an index into one. At :data:`WIDE_RANGE`, integers are
            then drawn from all rows, and include the first and the last.
        columns: For the columns of the last axis that are indices, the number of what they count, or None if that is
            unknown: their values are then the example's. The column None is the whole tensor, and so is OFFSETS, whose
            numbers ascend.
    """
    source = example.detach().cpu()
    if scale == EXAMPLE_ROWS and 0 not in source.shape:
        return _repeated(source, shape).to(example.device)
    if columns:
        return _with_indices(source, shape, random, scale, columns).to(source.dtype).to(example.device)
    if source.is_complex():
        parts = [fresh_tensor(part, shape, random, scale) for part in (source.real, source.imag)]
        return torch.complex(*parts).to(source.dtype)
    if source.dtype is torch.bool:
        values = _booleans(source, shape, random)
    elif source.dtype.is_floating_point:
        values = _floats(source.double().numpy(), shape, random, scale)
    else:
        values = _integers(source.numpy(), shape, random, scale, rows)
    return torch.from_numpy(np.ascontiguousarray(values)).to(source.dtype).to(example.device).reshape(shape)


def _repeated(source: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The elements after the first, and from the first on again, along each axis of another size."""
    for axis, (old, new) in enumerate(zip(source.shape, shape, strict=True)):
        if old != new:
            source = source.index_select(axis, (torch.arange(new) + 1) % old)
    return source.clone()


def lengths_up_to(values: torch.Tensor, size: int, new: int, random: np.random.Generator) -> torch.Tensor:
    """Lengths from 1 to ``size`` as lengths from 1 to ``new``, one of which is ``new``."""
    scaled = np.ceil(values.cpu().double().numpy() * new / size).clip(1, new)
    return torch.from_numpy(np.array(_with_ends(scaled, (new,), random))).to(values)


def _with_indices(
    source: torch.Tensor,
    shape: tuple[int, ...],
    random: np.random.Generator,
    scale: int,
    columns: Mapping[int | None, int | None],
) -> torch.Tensor:
    """A tensor some of whose columns are indices; the others are drawn as a tensor of their own."""
    if OFFSETS in columns:
        return _index_column(source, shape, random, scale, columns[OFFSETS]).sort(dim=-1).values
    if None in columns:
        return _index_column(source, shape, random, scale, columns[None])
    others = [column for column in range(shape[-1]) if column not in columns]
    result = torch.empty(shape, dtype=source.dtype)
    if others:
        result[..., others] = fresh_tensor(source[..., others], (*shape[:-1], len(others)), random, scale)
    for column, count in columns.items():
        result[..., column] = _index_column(source[..., column], shape[:-1], random, scale, count).to(source.dtype)
    return result


def _index_column(
    source: torch.Tensor, shape: tuple[int, ...], random: np.random.Generator, scale: int, count: int | None
) -> torch.Tensor:
    numbers = source.double().numpy()
    if scale >= EXAMPLE_VALUES or count is None:
        values = random.choice(numbers.reshape(-1), shape) if numbers.size else np.zeros(shape)
        values = values if count is None else np.minimum(values, count - 1)
    else:
        values = _with_ends(random.integers(0, max(count, 1), shape), (max(count, 1) - 1, 0), random)
    return torch.from_numpy(np.array(_sorted_like(values, _order(numbers))))


def _order(rows: np.ndarray) -> int:
    """1 if every row is ascending, -1 if descending, 0 if neither or if there are too few elements."""
    if rows.ndim == 0 or rows.shape[-1] < 2 or rows.size == 0 or rows.min() == rows.max():
        return 0
    steps = np.diff(rows.astype(np.float64), axis=-1)
    if rows.size < 3:
        return 0
    return 1 if (steps >= 0).all() else -1 if (steps <= 0).all() else 0


def _sorted_like(values: np.ndarray, order: int) -> np.ndarray:
    if order == 0 or values.ndim == 0:
        return values
    ascending = np.sort(values, axis=-1)
    return ascending if order > 0 else ascending[..., ::-1]


def _booleans(source: torch.Tensor, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """A mask. No row is all False or all True unless the example has such a row: attention may not accept them."""
    rows = source.numpy()
    share = float(rows.mean()) if rows.size else 0.5
    constant = share in (0.0, 1.0)
    values: np.ndarray = random.random(shape) < (0.5 if constant else share)
    order = _order(rows) if not constant else (-1 if share == 1.0 else 1)
    values = np.array(_sorted_like(values, order))
    if values.ndim and values.size and rows.ndim and rows.size:
        first = 0 if order < 0 else -1
        if bool(rows.any(axis=-1).all()):
            empty = ~values.any(axis=-1)
            values[..., first] |= empty
        if not bool(rows.all(axis=-1).any()) and values.shape[-1] > 1:
            full = values.all(axis=-1)
            values[..., -1 if first == 0 else 0] &= ~full
    return values


def _integers(
    source: np.ndarray, shape: tuple[int, ...], random: np.random.Generator, scale: int, rows: int | None
) -> np.ndarray:
    if source.size == 0:
        return np.zeros(shape, source.dtype)
    low, high = int(source.min()), int(source.max())
    if scale >= EXAMPLE_VALUES:
        return random.choice(source.reshape(-1), shape)
    if scale == WIDE_RANGE and rows is not None and low >= 0 and high < rows:
        return _indices(source, shape, random, rows)
    if scale == WIDE_RANGE and _is_image(source) and source.dtype == np.uint8 and high > 1:
        return _with_ends(random.integers(0, 255, shape, endpoint=True), (0, 255), random).astype(np.uint8)
    if low == high and scale == WIDE_RANGE:
        if source.size == 1:
            other = low - 1 if low >= 2 else low + 1
            return np.full(shape, other, source.dtype)
        low, high = (0, low) if low > 0 else (low, 0) if low < 0 else (0, 1)
    values = random.integers(low, high, shape, dtype=np.int64, endpoint=True)
    values = np.array(_sorted_like(values, _order(source)))
    if low == 0 and values.ndim and values.size and bool((source != 0).any(axis=-1).all()):
        values[..., 0] = np.where((values != 0).any(axis=-1), values[..., 0], high)
    return values.astype(source.dtype)


def _indices(source: np.ndarray, shape: tuple[int, ...], random: np.random.Generator, rows: int) -> np.ndarray:
    """Indices of any rows of a table. The last row is included, because a wrong bound in an engine shows there."""
    count = math.prod(shape)
    if 1 < source.size == np.unique(source).size and 2 < count <= rows:
        # Writing to one index twice is undefined.
        inner = random.permutation(np.arange(1, rows - 1))[: count - 2]
        values = random.permutation(np.append(inner, [0, rows - 1])).reshape(shape)
    else:
        values = _with_ends(random.integers(0, rows, shape, dtype=np.int64), (rows - 1, 0), random)
    return np.array(_sorted_like(values, _order(source))).astype(source.dtype)


def _with_ends(values: np.ndarray, ends: tuple[float, ...], random: np.random.Generator) -> np.ndarray:
    """``values`` with each of ``ends`` at a random position, as far as there are elements."""
    flat = values.reshape(-1)
    count = min(flat.size, len(ends))
    if count:
        flat[random.choice(flat.size, count, replace=False)] = ends[:count]
    return flat.reshape(values.shape)


def _is_image(source: np.ndarray) -> bool:
    """Whether an array has the shape of an image or a batch of images: channels first or last, and two sides."""
    if source.ndim not in (3, 4):
        return False
    first, last = source.shape[-3], source.shape[-1]
    sides = source.shape[-2:] if first in _CHANNELS else source.shape[-3:-1] if last in _CHANNELS else (0,)
    return min(sides) >= _SHORTEST_SIDE


def _quantile_sample(finite: np.ndarray, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Samples of the example's interpolated distribution: none is outside its range, and zeros are as frequent."""
    flat = finite.reshape(-1)
    flat = np.sort(flat[:: max(1, flat.size // _MOST_VALUES)])
    return np.interp(random.random(shape), np.linspace(0.0, 1.0, flat.size), flat)


def _constant(value: float, size: int, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Values for a constant example: zeros or ones are replaced by values in [0, 1], a factor changes by up to 25%."""
    if size == 1 and value == round(value) and value != 0:
        return np.full(shape, value + np.sign(value))
    if value in (0.0, 1.0):
        return random.random(shape)
    return value * (0.75 + 0.5 * random.random(shape))


def _floats(source: np.ndarray, shape: tuple[int, ...], random: np.random.Generator, scale: int) -> np.ndarray:
    finite = source[np.isfinite(source)]
    if source.size == 0:
        return random.standard_normal(shape)
    if scale >= EXAMPLE_VALUES or finite.size == 0:
        return random.choice(source.reshape(-1), shape)
    low, high = float(finite.min()), float(finite.max())
    whole = bool((finite == np.round(finite)).all()) and high - low < 1 << 24
    if low == high and finite.size == source.size:
        return _constant(low, source.size, shape, random)
    if _is_additive_mask(source):
        return _additive_mask(source, shape, random)
    if whole and low < high:
        distinct, counts = np.unique(finite.reshape(-1)[:_MOST_VALUES], return_counts=True)
        few = distinct.size <= 2
        values = (
            random.choice(distinct, shape, p=counts / counts.sum())
            if few
            else np.floor(random.integers(int(low), int(high), shape, endpoint=True))
        )
        values = np.asarray(values, np.float64)
    else:
        values = _quantile_sample(finite, shape, random)
    if scale == WIDE_RANGE and _is_image(source) and 0.0 <= low <= 0.1 and 0.5 < high <= 1.0:
        values = _with_ends(np.minimum(values / high, 1.0), (0.0, 1.0), random)
    return _structured(source, _with_nonfinite(source, values, random), random)


def _is_additive_mask(source: np.ndarray) -> bool:
    """Whether an array is an additive mask: zeros, and one number so low that the softmax of a score plus it is 0."""
    low = source.min()
    return bool(low <= _MASKED) and bool(((source == 0) | (source == low)).all()) and bool((source == 0).any())


def _additive_mask(source: np.ndarray, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    kept = _booleans(torch.from_numpy(source == 0), shape, random)
    return np.where(kept, 0.0, source.min())


def _with_nonfinite(source: np.ndarray, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """As many infinities and NaNs as in the example; every row has a finite element if the example's rows have one."""
    special = source[~np.isfinite(source)]
    if not special.size or not values.size:
        return values
    chosen = random.random(values.shape) < special.size / source.size
    if values.ndim and source.ndim and bool(np.isfinite(source).any(axis=-1).all()):
        chosen[..., 0] &= ~chosen.all(axis=-1)
    return np.where(chosen, random.choice(special, values.shape), values)


def _structured(source: np.ndarray, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if source.ndim == 0 or not np.isfinite(source).all() or values.size == 0:
        return values
    order = _order(source)
    if order:
        return np.array(_sorted_like(values, order))
    of_boxes = source.shape[-1] == values.shape[-1] == 4 and source.ndim >= 2
    if of_boxes and bool((source[..., 2:] >= source[..., :2]).all()):
        corners = np.sort(values.reshape(*values.shape[:-1], 2, 2), axis=-2)
        return corners.reshape(values.shape)
    total = source.sum(axis=-1)
    if source.shape[-1] > 1 and bool((source >= 0).all()) and np.allclose(total, 1.0, atol=1e-3):
        return values / np.maximum(values.sum(axis=-1, keepdims=True), 1e-30)
    square = source.ndim >= 2 and source.shape[-1] == source.shape[-2] > 1 and values.shape[-1] == values.shape[-2]
    if square and np.allclose(source, source.swapaxes(-1, -2)):
        return _symmetric(source, values, random)
    return values


def _symmetric(source: np.ndarray, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    spectrum = np.linalg.eigvalsh(source)
    if spectrum.min() <= 0:
        return (values + values.swapaxes(-1, -2)) / 2
    factor = random.standard_normal(values.shape)
    size = values.shape[-1]
    scale = float(np.trace(source, axis1=-2, axis2=-1).mean()) / source.shape[-1]
    return scale * (0.5 * factor @ factor.swapaxes(-1, -2) / size + 0.5 * np.eye(size))
