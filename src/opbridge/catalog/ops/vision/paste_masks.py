"""Pasting of the masks of detected objects into images."""

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

    torchvision resizes one mask after the other, each to a different size, and the number of masks is known only at run
    time. Bilinear resizing is two products with matrices of weights, one for the rows of the image and one for its
    columns, so that all masks can be pasted at once.
    """
    from torchvision.models.detection.roi_heads import expand_boxes, expand_masks

    masks, scale = expand_masks(masks, padding=padding)
    boxes = expand_boxes(boxes, scale).to(torch.int64)
    height, width = img_shape
    rows = _weights(boxes[:, 1], boxes[:, 3], height, masks.shape[-2], masks.dtype)
    columns = _weights(boxes[:, 0], boxes[:, 2], width, masks.shape[-1], masks.dtype)
    return (rows @ masks[:, 0] @ columns.mT)[:, None]


def _weights(first: Tensor, last: Tensor, size: Any, count: int, dtype: torch.dtype) -> Tensor:
    """The weights of a mask's ``count`` rows in each of an image's ``size`` rows: (N, size, count).

    Pixel ``i`` of a side resized to ``n`` is at position ``(i + 0.5) count / n - 0.5`` of the mask, between the centers
    of two elements (``torch.nn.functional.interpolate`` with ``align_corners=False``).

    Args:
        first: The first row of pixels of each box, (N,), int64.
        last: The last row of pixels of each box.
        size: The number of rows of the image.
        count: The number of rows of the mask.
        dtype: The dtype of the result.
    """
    extent = (last - first + 1)[:, None]
    pixel = torch.arange(size, device=first.device) - first[:, None]
    place = (pixel.to(dtype) + 0.5) * (count / extent.clamp_min(1).to(dtype)) - 0.5
    neighbour = torch.arange(count, device=first.device, dtype=dtype)
    distance = (place.clamp(0, count - 1)[..., None] - neighbour).abs()
    inside = (pixel >= 0) & (pixel < extent)
    return (1 - distance).clamp_min(0) * inside[..., None].to(dtype)
