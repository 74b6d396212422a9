"""The places of keypoints in heatmaps of detected objects."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.repeat import repeat
from opbridge.catalog.formulas.rois import largest_count


@rewrite("torchvision.models.detection.roi_heads.heatmaps_to_keypoints")
def heatmaps_to_keypoints(original: Callable[..., object], maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """The largest element of each heatmap (K, N, M, M) resized to its box (K, 4): (x, y, 1), (K, N, 3), and it, (K, N).

    torchvision resizes the heatmaps of one box after the other, each to a different size, and the number of boxes is
    known only at run time. Bicubic resizing is two products with matrices of weights, here with as many rows as the
    largest box needs; a loop over the boxes keeps the memory to that of one box.
    """
    extents = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    counts = extents.ceil()
    columns, rows = (_weights(counts[:, axis], maps.shape[-1 - axis], maps.dtype) for axis in (0, 1))
    boxes = torch.arange(rois.shape[0], device=rois.device)[:, None]

    def find(step: Tensor, x: Tensor, y: Tensor, best: Tensor) -> tuple[Tensor, ...]:
        number = step.reshape(1)
        (row_weights, row_limits), (column_weights, column_limits) = (
            [part.index_select(0, number).squeeze(0) for part in parts] for parts in (rows, columns)
        )
        resized = row_weights @ maps.index_select(0, number).squeeze(0) @ column_weights.mT
        resized = resized + row_limits[:, None] + column_limits
        row = resized.amax(-1).argmax(-1, keepdim=True)
        line = resized.gather(-2, row[:, :, None].expand(-1, -1, resized.shape[-1])).squeeze(-2)
        column = line.argmax(-1, keepdim=True)
        found = (column.squeeze(-1), row.squeeze(-1), line.gather(-1, column).squeeze(-1))
        return tuple(torch.where(boxes == step, new, old) for new, old in zip(found, (x, y, best), strict=True))

    places = maps.new_zeros(maps.shape[:2], dtype=torch.int64)
    x, y, best = repeat(maps.shape[0], find, places, places.clone(), maps.new_zeros(maps.shape[:2]))
    step_x, step_y = (extents / counts).unbind(1)
    at_x = (x + 0.5) * step_x[:, None] + rois[:, :1]
    at_y = (y + 0.5) * step_y[:, None] + rois[:, 1:2]
    return torch.stack([at_x, at_y, torch.ones_like(at_x)], -1), best


def _weights(counts: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weights with which a side of ``size`` elements is resized to ``counts`` elements: (K, n, size), and a bound.

    The bound, (K, n), is -inf for the elements from the count to the largest count n, and 0 for the others. Keys'
    kernel with a = -0.75, whose elements outside of the side are those at its ends (ATen/native/UpSample.h).
    """
    number = torch.arange(largest_count(counts.to(torch.int64)), device=counts.device)
    place = (number.to(dtype) + 0.5) * (size / counts)[:, None] - 0.5
    first = place.floor()
    share = (place - first)[..., None]
    taps = torch.arange(-1, 3, device=counts.device).to(dtype)
    distance = (share - taps).abs()
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    weights = torch.where(distance <= 1, near, far)
    index = (first[..., None] + taps).clamp(0, size - 1)
    chosen = index[..., None] == torch.arange(size, device=counts.device).to(dtype)
    bound = torch.where(number < counts[:, None], 0.0, -torch.inf).to(dtype)
    return torch.where(chosen, weights[..., None], 0.0).sum(-2), bound
