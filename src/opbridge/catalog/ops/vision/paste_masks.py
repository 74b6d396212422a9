"""The masks of detected objects, put into images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchvision.models.detection.roi_heads.paste_masks_in_image")
def paste_masks_in_image(
    original: Callable[..., Tensor], masks: Tensor, boxes: Tensor, img_shape: tuple[Any, Any], padding: int = 1
) -> Tensor:
    """Resize masks (N, 1, M, M) to their boxes (N, 4), in images of zeros: (N, 1, height, width).

    torchvision resizes one mask after the other, each to a size of its own, and the number of masks is known only when
    the model runs. A bilinear resize is two products with matrices of weights, one for the rows of the image and one
    for its columns: so all masks are pasted at once.
    """
    from torchvision.models.detection.roi_heads import expand_boxes, expand_masks

    masks, scale = expand_masks(masks, padding=padding)
    boxes = expand_boxes(boxes, scale).to(torch.int64)
    height, width = img_shape
    rows = _weights(boxes[:, 1], boxes[:, 3], height, masks.shape[-2], masks.dtype)
    columns = _weights(boxes[:, 0], boxes[:, 2], width, masks.shape[-1], masks.dtype)
    return (rows @ masks[:, 0] @ columns.mT)[:, None]


def _weights(first: Tensor, last: Tensor, size: Any, count: int, dtype: torch.dtype) -> Tensor:
    """How much of each of a mask's ``count`` rows goes into each of an image's ``size`` rows: (N, size, count).

    The pixel ``i`` of a side resized to ``n`` lies at ``(i + 0.5) count / n - 0.5`` of the mask, between the centres of
    two neighbours (``torch.nn.functional.interpolate`` with ``align_corners=False``).

    Args:
        first: The box's first row of pixels, (N,), int64.
        last: The box's last row.
        size: Of the image.
        count: Rows of the mask.
        dtype: Of the result.
    """
    extent = (last - first + 1)[:, None]
    pixel = torch.arange(size, device=first.device) - first[:, None]
    place = (pixel.to(dtype) + 0.5) * (count / extent.clamp_min(1).to(dtype)) - 0.5
    neighbour = torch.arange(count, device=first.device, dtype=dtype)
    distance = (place.clamp(0, count - 1)[..., None] - neighbour).abs()
    inside = (pixel >= 0) & (pixel < extent)
    return (1 - distance).clamp_min(0) * inside[..., None].to(dtype)
