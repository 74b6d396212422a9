"""The mean of interpolated points in each bin of a box, as a custom node with a kernel and a function body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import body_for
from opbridge.catalog.formulas.rois import bin_sizes, largest_count, position_sensitive
from opbridge.kernels.declared import kernel_for

kernel_for("torchvision::ps_roi_align", "ps_roi_align.h")


@body_for("torchvision::ps_roi_align")
def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """The mean of the points of each bin in the channel of the bin, and that channel (int32).

    ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,
    int sampling_ratio) -> (Tensor output, Tensor channel_mapping)

    The formulas are those of torchvision (csrc/ops/cpu/ps_roi_align_kernel.cpp): points outside of the image are 0, and
    a ratio that is not positive means about one point per pixel.
    """
    height, width = input.shape[2:]
    rows, row_weights, in_row, per_row = _points(
        rois[:, 2], rois[:, 4], spatial_scale, pooled_height, sampling_ratio, height
    )
    columns, column_weights, in_column, per_column = _points(
        rois[:, 1], rois[:, 3], spatial_scale, pooled_width, sampling_ratio, width
    )
    elements, channels = position_sensitive(input, rois, rows, columns)
    weights = row_weights[:, :, :, None, None] * column_weights[:, None, None]
    is_inside = in_row[:, :, :, None, None] & in_column[:, None, None]
    # A weight of 0 would make NaN of an infinite element.
    total = torch.where(is_inside[:, None], elements * weights[:, None], 0.0).sum((3, 5))
    return total / (per_row * per_column)[:, None, None, None], channels


def _points(
    first: Tensor, last: Tensor, scale: float, bins: int, ratio: int, size: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows between which the points of each bin are, and likewise the columns.

    Args:
        first: The coordinate at which each box begins, (K,).
        last: The coordinate at which it ends.
        scale: The number of rows per unit of the coordinates.
        bins: The number of bins of a box.
        ratio: The number of points of a bin; not positive if it depends on the size of the bin.
        size: The number of rows of an image.

    Returns:
        The rows above the n points of each bin, then those below, (K, bins, 2 n); their weights; whether each of them
        counts, because its point is in the image and belongs to the box; and the number of points of a bin, (K,).
    """
    start = first * scale - 0.5
    length = bin_sizes(last * scale - 0.5 - start, bins)
    points = length.ceil() if ratio <= 0 else torch.full_like(length, ratio)
    count = largest_count(points.to(torch.int64)) if ratio <= 0 else ratio
    number = torch.arange(count, device=first.device).to(first.dtype)
    bin_start = torch.arange(bins, device=first.device).to(first.dtype) * length[:, None] + start[:, None]
    place = bin_start[:, :, None] + ((number + 0.5) * length[:, None] / points[:, None])[:, None]
    is_inside = (place >= -1.0) & (place <= size) & (number < points[:, None, None])
    place = torch.where(is_inside, place, 0.0).clamp_min(0.0)
    row = place.to(torch.int64).clamp_max(size - 1)
    below = torch.where(row < size - 1, place - row.to(place.dtype), 0.0)
    rows = torch.cat([row, (row + 1).clamp_max(size - 1)], -1)
    return rows, torch.cat([1 - below, below], -1), torch.cat([is_inside, is_inside], -1), points
