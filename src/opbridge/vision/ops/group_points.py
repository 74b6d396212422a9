"""The features of selected points."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 3, 7, generator=generator)
    return [
        Sample((features, torch.randint(7, (2, 4, 5), generator=generator)), name="groups"),
        Sample((features, torch.randint(7, (2, 6), generator=generator)), name="points"),
    ]


@operator("opbridge_vision::group_points", samples=_samples)
def group_points(features: Tensor, positions: Tensor) -> Tensor:
    """The features of points: (batch, channels, ...) for positions (batch, ...); mmcv's ``gather_points`` too.

    Args:
        features: (batch, channels, points)
        positions: (batch, ...), integers: the points.
    """
    channels = features.shape[1]
    places = positions.to(torch.int64).flatten(1)[:, None].expand(-1, channels, -1)
    return features.gather(2, places).reshape(features.shape[0], channels, *positions.shape[1:])
