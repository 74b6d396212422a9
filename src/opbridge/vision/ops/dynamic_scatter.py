"""The features of each voxel, reduced from those of its points (MVF, arXiv:1910.06528)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.groups import group
from opbridge.vision.formulas.overlap import check_choice

_REDUCTIONS = ("max", "sum", "mean")


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(24, 4, generator=generator)
    places = torch.randint(3, (24, 3), generator=generator)
    places[::5] = -1
    return [Sample((features, places, reduce), name=reduce) for reduce in _REDUCTIONS]


@operator("opbridge_vision::dynamic_scatter", samples=_samples)
def dynamic_scatter(features: Tensor, places: Tensor, reduce: str = "max") -> tuple[Tensor, Tensor]:
    """The largest features, the sum or the mean of the points of each voxel that has points.

    Args:
        features: (points, channels)
        places: (points, axes), integers: the voxel of each point. Points with a negative number are left out.
        reduce: ``"max"``, ``"sum"`` or ``"mean"``.

    Returns:
        The features, (voxels, channels), and the voxels in lexicographic order, (voxels, axes), int64.

    Raises:
        InputError: There is no such reduction.
    """
    _check(features, places, reduce)
    places = places.to(torch.int64)
    extents = torch.nn.functional.pad(places, (0, 0, 0, 1)).amax(0).clamp(min=0) + 1
    number = torch.zeros_like(places[:, 0])
    for axis in range(places.shape[1]):
        number = number * extents[axis] + places[:, axis]
    outside = extents.prod()
    found = group(torch.where((places < 0).any(1), outside, number))
    chosen = (found.keys < outside).nonzero().squeeze(1)
    ordered = features[found.order]
    rows = found.group[:, None].expand(-1, features.shape[1])
    is_max = reduce == "max"
    empty = ordered.new_full((found.keys.shape[0], features.shape[1]), -torch.inf if is_max else 0.0)
    reduced = empty.scatter_reduce(0, rows, ordered, "amax" if is_max else "sum")
    if reduce == "mean":
        reduced = reduced / found.sizes[:, None].to(reduced.dtype)
    return reduced[chosen], places[found.order[found.begins[chosen]]]


def _check(features: Tensor, places: Tensor, reduce: str) -> None:
    check_choice("reduce", reduce, _REDUCTIONS)
    points = features.shape[0]
    torch._check(places.shape[0] == points, lambda: f"{places.shape[0]} places of {points} points")


@dynamic_scatter.fake
def _shape(features: Tensor, places: Tensor, reduce: str = "max") -> tuple[Tensor, Tensor]:
    _check(features, places, reduce)
    voxels = torch.library.get_ctx().new_dynamic_size()
    cells = places.new_empty((voxels, places.shape[1]), dtype=torch.int64)
    return features.new_empty(voxels, features.shape[1]), cells


dynamic_scatter.kernel("dynamic_scatter.h")
