"""Content-aware reassembly of features (CARAFE, arXiv:1905.02188)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, kernel: int, groups: int, factor: int) -> Sample:
        features = torch.randn(2, 4, 3, 5, generator=generator)
        masks = torch.randn(2, kernel * kernel * groups, 3 * factor, 5 * factor, generator=generator)
        return Sample((features, masks, kernel, groups, factor), name=name)

    return [sample("two groups", 3, 2, 2), sample("larger kernel", 5, 1, 3)]


@operator("opbridge_vision::carafe", samples=_samples)
def carafe(features: Tensor, masks: Tensor, kernel_size: int, group_size: int, scale_factor: int) -> Tensor:
    """The image enlarged: each new pixel is a sum of the pixels around its old one, weighted by a mask of its own.

    Args:
        features: (images, channels, height, width)
        masks: (images, group_size * kernel_size squared, height * scale_factor, width * scale_factor)
        kernel_size: The side of the square of pixels that are summed; odd.
        group_size: The number of groups of channels, each of which has masks of its own.
        scale_factor: The factor of height and width.
    """
    batch, channels, height, width = features.shape
    half = kernel_size // 2
    around = torch.nn.functional.pad(features, (half, half, half, half))
    weights = masks.reshape(batch, group_size, 1, kernel_size**2, height, scale_factor, width, scale_factor)
    total = torch.zeros((), dtype=features.dtype)
    for tap in range(kernel_size**2):
        row, column = tap // kernel_size, tap % kernel_size
        shifted = around[:, :, row : row + height, column : column + width]
        pixels = shifted.reshape(batch, group_size, channels // group_size, height, 1, width, 1)
        total = total + pixels * weights[:, :, :, tap]
    return total.reshape(batch, channels, height * scale_factor, width * scale_factor)


carafe.kernel("carafe.h")
