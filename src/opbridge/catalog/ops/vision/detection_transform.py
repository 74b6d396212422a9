"""The image preprocessing of detectors: resizing to a range of sizes, and padding to a common size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from opbridge.catalog.declare.spec import rewrite


def _is_static(sizes: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in sizes)


@rewrite("torchvision.models.detection.transform._resize_image_and_masks")
def resize_image(
    original: Callable[..., Any],
    image: Tensor,
    self_min_size: int,
    self_max_size: int,
    target: Any = None,
    fixed_size: Any = None,
) -> Any:
    """Resize an image (C, H, W) of dynamic size so that its shorter side is ``self_min_size``.

    The longer side never exceeds ``self_max_size``. The new sizes are computed in float64, as in Python; float32 would
    sometimes lose a pixel. They become new symbols, so that the size expressions in the backbone stay simple.
    """
    sizes = image.shape[-2:]
    if target is not None or fixed_size is not None or _is_static(sizes):
        return NotImplemented
    numbers = [torch.scalar_tensor(size, dtype=torch.float64) for size in sizes]
    shorter, longer = torch.minimum(*numbers), torch.maximum(*numbers)
    scale = torch.minimum(self_min_size / shorter, self_max_size / longer)
    resized: list[Any] = [(number * scale).floor().to(torch.int64).item() for number in numbers]
    for size in resized:
        torch._check(size >= 1)
        torch._check(size <= self_max_size)
    return interpolate(image[None], size=resized, mode="bilinear", align_corners=False)[0], None


@rewrite("torchvision.models.detection.transform.GeneralizedRCNNTransform.batch_images")
def batch_images(original: Callable[..., Tensor], self: Any, images: list[Tensor], size_divisible: int = 32) -> Any:
    """Pad images (C, H, W) to the largest size rounded up to a multiple of ``size_divisible``: (N, C, H', W')."""
    if all(_is_static(image.shape) for image in images):
        return NotImplemented
    largest: list[Any] = list(images[0].shape)
    for image in images[1:]:
        largest = [torch.sym_max(one, other) for one, other in zip(largest, image.shape, strict=True)]
    height, width = ((size + size_divisible - 1) // size_divisible * size_divisible for size in largest[1:])
    return torch.stack([pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images])
