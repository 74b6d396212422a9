"""The points around each query (PointNet++, arXiv:1706.02413)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.points import squared_distances


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, low: float, high: float, most: int) -> Sample:
        points = torch.randn(2, 12, 3, generator=generator)
        # Some queries are points, and one has none around it.
        queries = torch.cat([points[:, :2], torch.randn(2, 3, 3, generator=generator), torch.full((2, 1, 3), 9.0)], 1)
        return Sample((queries, points, low, high, most), name=name)

    return [sample("a ball", 0.0, 1.2, 4), sample("a shell", 0.8, 1.6, 15)]


@operator("opbridge_vision::ball_query", samples=_samples)
def ball_query(queries: Tensor, points: Tensor, min_radius: float, max_radius: float, sample_num: int) -> Tensor:
    """The first points at a distance of at least ``min_radius`` and less than ``max_radius``: (batch, queries, n).

    Points at the query itself count too. If there are too few points, the first one fills the row; if there are none,
    the row is 0.

    Args:
        queries: (batch, queries, axes)
        points: (batch, points, axes)
        min_radius: The smallest distance.
        max_radius: The distance that is too large.
        sample_num: The number of points of each query.

    Returns:
        Positions in ``points``, int64.
    """
    distances = squared_distances(queries, points)
    inside = (distances == 0) | ((distances >= min_radius**2) & (distances < max_radius**2))
    count = points.shape[1]
    # Positions minus their number, so that 0 stands for no point.
    places = torch.where(inside, torch.arange(count) - count, 0)
    first = torch.nn.functional.pad(places, (0, sample_num)).topk(sample_num, largest=False).values
    repeated = torch.where(first < 0, first, first[..., :1])
    return torch.where(repeated < 0, repeated + count, 0)


ball_query.kernel("ball_query.h")
