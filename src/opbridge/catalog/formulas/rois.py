"""Pooling of boxes: sizes that depend on the boxes, and the elements that position-sensitive pooling reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["bin_sizes", "image_of", "largest_count", "position_sensitive"]


def bin_sizes(extents: Tensor, bins: int) -> Tensor:
    """The extents of boxes divided by the number of bins.

    The edges of bins are rounded, so the last digit counts. The divisor is therefore not a constant: some engines
    multiply by the reciprocal of a constant.
    """
    return extents / torch.where(extents < torch.inf, extents.new_full((), bins), 1.0)


def largest_count(counts: Tensor) -> Any:
    """The largest of some counts (an integer tensor, which may be empty), as a size of at least 1."""
    largest = torch.cat([counts.reshape(-1), counts.new_ones(1)]).max().item()
    torch._check(largest >= 1)
    return largest


def image_of(rois: Tensor) -> Tensor:
    """The number of the image of each box (image, x1, y1, x2, y2), as int64: (boxes,)."""
    return rois[:, 0].to(torch.int64)


def position_sensitive(input: Tensor, rois: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The elements that each bin of a box reads, where every bin has a channel of its own.

    Args:
        input: The images, (N, C, H, W).
        rois: The boxes, (K, 5).
        rows: The rows that each bin reads, (K, bins per column, n).
        columns: The columns that each bin reads, (K, bins per row, m).

    Returns:
        The elements, (K, C / bins, bins per column, n, bins per row, m), and the channel of each bin (int32),
        (K, C / bins, bins per column, bins per row).
    """
    channels, height, width = input.shape[1:]
    grid = (rows.shape[1], columns.shape[1])
    channel = torch.arange(channels, device=input.device).reshape(-1, *grid)
    plane = (image_of(rois) * channels)[:, None, None, None] + channel
    place = rows[:, :, :, None, None] * width + columns[:, None, None]
    index = (plane * (height * width))[:, :, :, None, :, None] + place[:, None]
    elements = input.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)
    return elements, channel.to(torch.int32).expand(rois.shape[0], -1, -1, -1).clone()
