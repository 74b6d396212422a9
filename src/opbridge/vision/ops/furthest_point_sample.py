"""Points that are far from each other (PointNet++, arXiv:1706.02413)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    return [
        Sample((torch.randn(2, 14, 3, generator=generator), 6), name="two clouds"),
        Sample((torch.randn(1, 5, 2, generator=generator), 5), name="all points of a plane"),
    ]


@operator("opbridge_vision::furthest_point_sample", samples=_samples)
def furthest_point_sample(points: Tensor, num_points: int) -> Tensor:
    """The first point, then again and again the one that is furthest from all that are chosen: (batch, num_points).

    Args:
        points: (batch, points, axes), at least one point.
        num_points: The number of points to choose.

    Returns:
        Positions in ``points``, int64.
    """
    # A loop's tensors keep their strides while a model is captured.
    points = points.contiguous()
    batch, axes = points.shape[0], points.shape[2]
    places = torch.arange(num_points)

    def go_on(place: Tensor, last: Tensor, nearest: Tensor, chosen: Tensor) -> Tensor:
        return place < num_points

    def choose(place: Tensor, last: Tensor, nearest: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        newest = points.gather(1, last[:, None, None].expand(-1, 1, axes))
        distances = torch.minimum(nearest, (points - newest).square().sum(2))
        return place + 1, distances.argmax(1), distances, torch.where(places == place, last[:, None], chosen)

    start = torch.zeros((), dtype=torch.int64)
    first = torch.zeros(batch, dtype=torch.int64)
    nearest = torch.full_like(points[:, :, 0], torch.inf)
    chosen = torch.zeros((batch, num_points), dtype=torch.int64)
    return torch.while_loop(go_on, choose, (start, first, nearest, chosen))[3]


furthest_point_sample.kernel("furthest_point_sample.h")
