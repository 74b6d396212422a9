"""The largest element or the mean of each bin of a box, as custom nodes with kernels and function bodies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import body_for
from opbridge.catalog.formulas.rois import bin_sizes, image_of, largest_count, position_sensitive
from opbridge.kernels.declared import kernel_for

kernel_for("torchvision::roi_pool", "roi_pool.h")
kernel_for("torchvision::ps_roi_pool", "ps_roi_pool.h")


@body_for("torchvision::roi_pool")
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest element of each bin, and its place in the image (int32): 0 and -1 for a bin without elements.

    roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)
    -> (Tensor, Tensor)

    As in torchvision (csrc/ops/cpu/roi_pool_kernel.cpp), the search starts from the lowest float32 in every type, so
    that NaN and lower numbers are never found. An element that a bin reads twice does not change its maximum.
    """
    channels, height, width = input.shape[1:]
    lowest = torch.finfo(torch.float32).min
    rows, _, row_counts = _bins(rois[:, 2], rois[:, 4], spatial_scale, pooled_height, height, extra=1)
    columns, _, column_counts = _bins(rois[:, 1], rois[:, 3], spatial_scale, pooled_width, width, extra=1)
    pixels = torch.where(input > lowest, input, lowest).permute(0, 2, 3, 1).reshape(-1, channels)
    # Reduced axes beside each other spare an engine a transposed copy of the elements, which take most of the memory.
    place = (rows[:, :, None, :, None] * width + columns[:, None, :, None]).flatten(3)
    index = place + (image_of(rois) * (height * width))[:, None, None, None]
    values = pixels.index_select(0, index.reshape(-1)).reshape([*index.shape, channels])
    largest = values.amax(3)
    # Places rise along the axis, so that the first of equal elements has the lowest.
    first = place.gather(3, values.argmax(3))
    is_full = ((row_counts > 0)[:, :, None] & (column_counts > 0)[:, None])[..., None]
    found = torch.where(is_full & (largest > lowest), first, -1).to(torch.int32)
    return torch.where(is_full, largest, 0.0).permute(0, 3, 1, 2), found.permute(0, 3, 1, 2)


@body_for("torchvision::ps_roi_pool")
def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The mean of each bin in the channel of the bin, and that channel (int32); 0 for a bin without elements.

    ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)
    -> (Tensor output, Tensor channel_mapping)

    As in torchvision (csrc/ops/cpu/ps_roi_pool_kernel.cpp), the last row and the last column of an image are in no bin.
    """
    height, width = input.shape[2:]
    rows, in_row, row_counts = _bins(rois[:, 2], rois[:, 4], spatial_scale, pooled_height, height - 1)
    columns, in_column, column_counts = _bins(rois[:, 1], rois[:, 3], spatial_scale, pooled_width, width - 1)
    elements, channels = position_sensitive(input, rois, rows, columns)
    is_inside = in_row[:, :, :, None, None] & in_column[:, None, None]
    total = torch.where(is_inside[:, None], elements, 0.0).sum((3, 5))
    is_full = ((row_counts > 0)[:, :, None] & (column_counts > 0)[:, None])[:, None]
    area = (row_counts[:, :, None] * column_counts[:, None])[:, None].to(input.dtype)
    return torch.where(is_full, total / torch.where(is_full, area, 1.0), 0.0), channels


def _bins(
    first: Tensor, last: Tensor, scale: float, bins: int, limit: Any, extra: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of an image in each bin of a box; likewise the columns.

    Args:
        first: The coordinate at which each box begins, (K,).
        last: The coordinate at which it ends.
        scale: The number of rows per unit of the coordinates.
        bins: The number of bins of a box.
        limit: The number of rows, from the first, that bins may have.
        extra: 1 if the row at ``last`` is in the box, otherwise 0.

    Returns:
        The rows, (K, bins, n) for the largest number n; whether each of them is in the bin, because a bin with fewer
        rows repeats one of them; and the number of rows of each bin, (K, bins), 0 or negative if it has none.
    """
    start, end = _rounded(first * scale), _rounded(last * scale)
    length = bin_sizes((end - start + extra).clamp_min(1.0), bins)
    edges = torch.arange(bins + 1, device=first.device).to(first.dtype) * length[:, None]
    lower = (edges[:, :-1].floor() + start[:, None]).to(torch.int64).clamp_min(0).clamp_max(limit)
    upper = (edges[:, 1:].ceil() + start[:, None]).to(torch.int64).clamp_min(0).clamp_max(limit)
    counts = upper - lower
    number = torch.arange(largest_count(counts), device=first.device)
    rows = torch.minimum(lower[:, :, None] + number, (upper[:, :, None] - 1).clamp_min(0))
    return rows, number < counts[:, :, None], counts


def _rounded(x: Tensor) -> Tensor:
    """The nearest whole numbers, and of two the one farther from 0, as ``round`` in C; exact for every number."""
    whole = x.trunc()
    rest = x - whole
    return whole + (rest >= 0.5).to(x.dtype) - (rest <= -0.5).to(x.dtype)
