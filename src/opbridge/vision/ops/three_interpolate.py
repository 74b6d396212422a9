"""Features between points (PointNet++, arXiv:1706.02413)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, near: int) -> Sample:
        features, weights = torch.randn(2, 4, 7, generator=generator), torch.rand(2, 5, near, generator=generator)
        return Sample((features, torch.randint(7, (2, 5, near), generator=generator), weights), name=name)

    return [sample("three points", 3), sample("two points", 2)]


@operator("opbridge_vision::three_interpolate", samples=_samples)
def three_interpolate(features: Tensor, positions: Tensor, weights: Tensor) -> Tensor:
    """The weighted sums of the features of a few points: (batch, channels, n).

    Args:
        features: (batch, channels, points)
        positions: (batch, n, 3), integers: the points of each sum; any number of them instead of 3.
        weights: (batch, n, 3)
    """
    channels, near = features.shape[1], positions.shape[2]
    places = positions.to(torch.int64).flatten(1)[:, None].expand(-1, channels, -1)
    grouped = features.gather(2, places).reshape(features.shape[0], channels, positions.shape[1], near)
    return (grouped * weights[:, None]).sum(3)


three_interpolate.kernel("three_interpolate.h")
