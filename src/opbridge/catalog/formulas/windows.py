"""The windows of an image as separate axes, and their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["window_sums", "windows"]


def windows(x: Tensor, axis: int, size: int, count: Any, stride: int, dilation: int) -> Tensor:
    """Split an axis into two: the ``count`` positions of a window, and its ``size`` elements."""
    starts = torch.arange(count, dtype=torch.int64) * stride
    places = starts[:, None] + torch.arange(size, dtype=torch.int64) * dilation
    taken = torch.index_select(x, axis, places.reshape(-1))
    return taken.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])


def window_sums(x: Tensor, kernel: Sequence[int], stride: Sequence[int]) -> Tensor:
    """The sum of each window over the last axes, one axis after the other.

    Args:
        x: The padded tensor; the windows are over its last axes.
        kernel: The sizes of a window, one per axis.
        stride: The distances between windows, one per axis.
    """
    for place, (size, step) in enumerate(zip(kernel, stride, strict=True)):
        axis = x.dim() - len(kernel) + place
        count = (x.shape[axis] - size) // step + 1
        x = windows(x, axis, size, count, step, 1).sum(axis + 1)
    return x
