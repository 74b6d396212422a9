"""Symmetric padding of images of dynamic size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torchvision.transforms._functional_tensor._pad_symmetric")
def pad_symmetric(original: Callable[..., Tensor], img: Tensor, padding: Sequence[int]) -> Any:
    """Pad images (.., H, W) by (left, right, top, bottom) with their mirror image, which repeats the border.

    torchvision lists all rows and columns in Python.
    """
    if all(isinstance(size, int) for size in img.shape[-2:]) or min(padding) < 0:
        return NotImplemented
    left, right, top, bottom = padding
    return mirrored(mirrored(img, -1, left, right), -2, top, bottom)


def mirrored(image: Tensor, axis: int, before: int, after: int) -> Tensor:
    """``image`` with so many rows of its mirror image before it and after it."""
    size = image.shape[axis]
    place = torch.arange(-before, size + after, device=image.device)
    place = torch.where(place < 0, -1 - place, torch.where(place < size, place, 2 * size - 1 - place))
    return image.index_select(axis, place)
