"""Multidimensional histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.ops.reduction.histogram import equal_edges


def _counted(self: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """The weight of the points in each cell; the last cell along a coordinate includes its upper edge."""
    points = self.reshape(-1, len(edges))
    sizes = [each.shape[0] - 1 for each in edges]
    cell = torch.zeros(points.shape[:1], dtype=torch.int64)
    is_inside = torch.ones(points.shape[:1], dtype=torch.bool)
    for number, (each, size) in enumerate(zip(edges, sizes, strict=True)):
        values = points[:, number]
        place = (torch.searchsorted(each, values, right=True) - 1).clamp(0, size - 1)
        cell = cell * size + place
        is_inside = is_inside & (values >= each[0]) & (values <= each[-1])
    weights = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1)
    empty = torch.zeros(math.prod(sizes), dtype=points.dtype)
    counts = empty.scatter_add(0, cell, torch.where(is_inside, weights, 0)).reshape(sizes)
    if not density:
        return counts
    result = counts / counts.sum()
    for number, each in enumerate(edges):
        result = result / torch.diff(each).reshape([-1, *[1] * (len(edges) - 1 - number)])
    return result


@decomposition("aten::_histogramdd_bin_edges")
def histogramdd_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """The edges of equal bins along each coordinate.

    _histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> Tensor[]
    """
    points = self.reshape(-1, len(bins))
    ranges = [None] * len(bins) if range is None else [range[2 * i : 2 * i + 2] for i, _ in enumerate(bins)]
    return [equal_edges(points[:, i], size, ranges[i]) for i, size in enumerate(bins)]


@decomposition("aten::_histogramdd_from_bin_cts")
def histogramdd_of_counts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """The weight in each cell of equal bins.

    _histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> Tensor
    """
    return _counted(self, histogramdd_edges(self, bins, range=range), weight, density)


@decomposition("aten::_histogramdd_from_bin_tensors")
def histogramdd_of_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """The weight in each cell of the given edges.

    _histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> Tensor
    """
    return _counted(self, bins, weight, density)
