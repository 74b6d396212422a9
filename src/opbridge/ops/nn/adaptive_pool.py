"""Pools of a given output size: the windows differ in length, so their elements are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.numerics.pooling import first_largest, lowest
from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition


def _gathered(x: Tensor, axis: int, outputs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Window i runs from floor(i length / outputs) to ceil((i + 1) length / outputs).

    Returns:
        The windows' elements, with a last axis for them; which are the window's own; where windows begin; how long
        they are.
    """
    length = x.shape[axis]
    number = torch.arange(outputs)
    start = number * length // outputs
    stop = ((number + 1) * length + outputs - 1) // outputs
    widest = (length + outputs - 1) // outputs + 1
    place = start.unsqueeze(-1) + torch.arange(widest)
    rows = x.movedim(axis, -1).index_select(-1, place.clamp_max(length - 1).reshape(-1))
    windows = rows.reshape([*rows.shape[:-1], outputs, widest])
    return windows, place < stop.unsqueeze(-1), start, stop - start


@in_working_precision
def _averaged(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """One axis after the other."""
    count = len(output_size)
    if isinstance(x.numel(), int) and x.numel() == 0:
        # Engines differ in what the sum of nothing is.
        return x.new_zeros([*x.shape[:-count], *output_size])
    for axis, size in zip(range(x.dim() - count, x.dim()), output_size, strict=True):
        windows, is_own, _, lengths = _gathered(x, axis, size)
        x = (torch.where(is_own, windows, 0).sum(-1) / lengths.to(x.dtype)).movedim(-1, axis)
    return x


@decomposition("aten::_adaptive_avg_pool2d", overrides="torch decomposes it into a sum for each element of a window")
def adaptive_avg_pool2d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean of each window of an (.., H, W) tensor.

    _adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor
    """
    return _averaged(self, output_size)


@decomposition("aten::_adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean of each window of an (.., D, H, W) tensor.

    _adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor
    """
    return _averaged(self, output_size)


def _largest(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its place in the flattened axes: the first in reading order."""
    rank = len(output_size)
    sizes = x.shape[-rank:]
    step: Any = 1
    place: Tensor | None = None
    for axis in reversed(range(x.dim() - rank, x.dim())):
        windows, is_own, start, _ = _gathered(x, axis, output_size[axis - x.dim()])
        value, position = first_largest(torch.where(is_own, windows, lowest(x.dtype)))
        own = (position + start.unsqueeze(-1)) * step
        if place is not None:
            places, *_ = _gathered(place, axis, output_size[axis - x.dim()])
            own = own + places.gather(-1, position)
        x, place = value.squeeze(-1).movedim(-1, axis), own.squeeze(-1).movedim(-1, axis)
        step = step * sizes[axis - x.dim()]
    assert place is not None
    return x, place


@decomposition("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., H, W) tensor, and its place in the flattened H and W.

    adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)
    """
    return _largest(self, output_size)


@decomposition("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., D, H, W) tensor, and its place in the flattened D, H and W.

    adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)
    """
    return _largest(self, output_size)
