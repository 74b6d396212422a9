"""Multi-scale deformable attention (Deformable DETR, arXiv:2010.04159)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, levels: list[list[int]], batch: int, queries: int, heads: int, points: int) -> Sample:
        shapes = torch.tensor(levels)
        sizes = shapes.prod(1)
        value = torch.randn(batch, int(sizes.sum()), heads, 4, generator=generator)
        # Some points are outside of the image.
        locations = 1.4 * torch.rand(batch, queries, heads, len(levels), points, 2, generator=generator) - 0.2
        weights = torch.rand(batch, queries, heads, len(levels), points, generator=generator)
        return Sample((value, shapes, sizes.cumsum(0) - sizes, locations, weights), name=name)

    return [
        sample("three levels", [[6, 8], [3, 4], [2, 2]], 2, 5, 2, 3),
        sample("one level", [[5, 3]], 1, 7, 3, 1),
    ]


@operator("opbridge_vision::ms_deform_attn", samples=_samples)
def ms_deform_attn(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
) -> Tensor:
    """The weighted sum of the bilinear samples of all levels: (images, queries, heads * channels).

    Args:
        value: (images, pixels, heads, channels), with the pixels of all levels one after the other.
        spatial_shapes: (levels, 2), int64: the height and width of each level.
        level_start_index: (levels,), int64: the first pixel of each level.
        sampling_locations: (images, queries, heads, levels, points, 2): x and y, 0 and 1 at the borders of the image.
        attention_weights: (images, queries, heads, levels, points)
    """
    batch, _, heads, channels = value.shape
    queries = sampling_locations.shape[1]
    height, width = spatial_shapes[:, 0, None], spatial_shapes[:, 1, None]
    first = level_start_index[:, None]
    x = sampling_locations[..., 0] * width.to(value.dtype) - 0.5
    y = sampling_locations[..., 1] * height.to(value.dtype) - 0.5
    left, top = x.floor(), y.floor()
    pixels = value.transpose(1, 2)
    result = torch.zeros((), dtype=value.dtype)
    for down in (0, 1):
        for right in (0, 1):
            share = (y - top if down else 1 - (y - top)) * (x - left if right else 1 - (x - left))
            row, column = top.to(torch.int64) + down, left.to(torch.int64) + right
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = torch.where(inside, first + row * width + column, 0).transpose(1, 2).reshape(batch, heads, -1, 1)
            factor = torch.where(inside, share * attention_weights, 0).transpose(1, 2).reshape(batch, heads, -1, 1)
            result = result + pixels.gather(2, place.expand(-1, -1, -1, channels)) * factor
    summed = result.reshape(batch, heads, queries, -1, channels).sum(3)
    return summed.transpose(1, 2).reshape(batch, queries, heads * channels)


ms_deform_attn.kernel("ms_deform_attn.h")
