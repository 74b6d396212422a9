"""Parts of pooling: the maximum of a window, the number of windows, and windows of dynamic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.formulas.windows import windows

__all__ = ["first_largest", "is_always", "over_dynamic_windows", "pooled_length"]


def first_largest(windows: Tensor, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The largest element along ``axis`` and its first index; NaN takes precedence, with the index of the last NaN.

    PyTorch's pooling selects the same element, because it proceeds to each larger element and to each NaN. Engines
    differ in their ArgMax of NaN, so NaN is handled separately.

    Returns:
        The elements and the indices, with size 1 along ``axis``.
    """
    value = windows.amax(axis, keepdim=True)
    if not windows.dtype.is_floating_point or not keeps_nan():
        return value, windows.argmax(axis, keepdim=True)
    is_nan = windows.isnan()
    position = torch.where(is_nan, -math.inf, windows).argmax(axis, keepdim=True)
    shape = [-1] + [1] * (-1 - axis if axis < 0 else windows.dim() - 1 - axis)
    last_nan = torch.where(is_nan, torch.arange(windows.shape[axis]).reshape(shape), -1).amax(axis, keepdim=True)
    return value, torch.where(last_nan >= 0, last_nan, position)


def pooled_length(length: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """The number of windows along an axis; with ``ceil_mode`` the last one must begin inside the left-padded input."""
    room = length + 2 * padding - kernel
    if not ceil_mode:
        return room // stride + 1
    count = (room + stride - 1) // stride + 1
    begins_outside = (count - 1) * stride >= length + padding
    if isinstance(begins_outside, bool):
        return count - begins_outside
    if statically_known_true(torch.sym_not(begins_outside)):
        return count
    return count - torch.sym_ite(begins_outside, 1, 0)


def over_dynamic_windows(
    x: Tensor, rank: int, kernel_size: Any, stride: Any, reduce: Callable[[Tensor, int], Tensor]
) -> Tensor | None:
    """Reduce windows along the last ``rank`` axes, one axis after the other; None if no size of them is dynamic.

    torch's operators of pooling make the sizes of windows constant.

    Args:
        x: The tensor, without padding.
        rank: The number of axes.
        kernel_size: The size of a window: one, or one for each axis.
        stride: The same for the distance of windows; by default it is the size.
        reduce: Reduces an axis and removes it; the reduction of all axes is that of one after the other.
    """
    kernel = _for_axes(kernel_size, rank)
    steps = kernel if stride is None or stride == [] else _for_axes(stride, rank)
    if not any(isinstance(number, torch.SymInt) for number in (*kernel, *steps)):
        return None
    for axis, size, step in zip(range(x.dim() - rank, x.dim()), kernel, steps, strict=True):
        if statically_known_true(size == x.shape[axis]):
            x = reduce(x, axis).unsqueeze(axis)
        else:
            count = (x.shape[axis] - size) // step + 1
            x = reduce(windows(x, axis, size, count, step, 1), axis + 1)
    return x


def is_always(value: Any, number: int) -> bool:
    """Whether an argument for one or more axes is this number for all of them, and not dynamic."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(one, int) and one == number for one in values)


def _for_axes(value: Any, rank: int) -> list[Any]:
    values: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    return list(values) * rank if len(values) == 1 else list(values)
