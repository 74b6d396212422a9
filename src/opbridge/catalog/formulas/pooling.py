"""Parts of pooling: the maximum of a window, and the number of windows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan

__all__ = ["first_largest", "pooled_length"]


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
    return count - torch.sym_ite(begins_outside, 1, 0)
