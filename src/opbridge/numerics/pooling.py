"""What pools are made of: the largest of a window, and how long an output is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["first_largest", "lowest", "pooled_length"]


def lowest(dtype: torch.dtype) -> float:
    """What no element of the type is below."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def first_largest(windows: Tensor) -> tuple[Tensor, Tensor]:
    """The largest element along the last axis and its position, the first of equal ones; NaN wins, the last NaN.

    That is what PyTorch's pools pick: they go on from an element to a larger one, and to any NaN. Engines differ in
    what their ArgMax does with NaN, so it is looked for apart.

    Returns:
        Both with a last axis of length 1.
    """
    if not windows.dtype.is_floating_point:
        position = windows.argmax(-1, keepdim=True)
        return windows.gather(-1, position), position
    is_nan = windows.isnan()
    position = torch.where(is_nan, -math.inf, windows).argmax(-1, keepdim=True)
    last_nan = torch.where(is_nan, torch.arange(windows.shape[-1]), -1).amax(-1, keepdim=True)
    position = torch.where(last_nan >= 0, last_nan, position)
    return windows.gather(-1, position), position


def pooled_length(length: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """How many windows a pool has along an axis; in ``ceil_mode`` a last one that begins inside the padded input."""
    room = length + 2 * padding - kernel
    if not ceil_mode:
        return room // stride + 1
    count = (room + stride - 1) // stride + 1
    begins_outside = (count - 1) * stride >= length + padding
    if isinstance(begins_outside, bool):
        return count - begins_outside
    return count - torch.sym_ite(begins_outside, 1, 0)
