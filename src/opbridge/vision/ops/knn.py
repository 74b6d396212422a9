"""The nearest points of a cloud."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.points import squared_distances


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, batch: int, queries: int, points: int, axes: int, k: int) -> Sample:
        clouds = (torch.randn(batch, count, axes, generator=generator) for count in (queries, points))
        return Sample((*clouds, k), name=name)

    return [sample("three", 2, 5, 8, 3, 3), sample("one of a plane", 1, 4, 9, 2, 1)]


@operator("opbridge_vision::knn", samples=_samples)
def knn(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` nearest points of each query, the nearest first; with k = 3 it is mmcv's ``three_nn``.

    Args:
        queries: (batch, queries, axes)
        points: (batch, points, axes), at least ``k`` of them.
        k: The number of points.

    Returns:
        The distances, and the positions in ``points``, int64: (batch, queries, k) both.
    """
    nearest, positions = squared_distances(queries, points).topk(k, largest=False)
    return nearest.sqrt(), positions


knn.kernel("knn.h")
