"""The points of each voxel of a cloud (VoxelNet, arXiv:1711.06396)."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.groups import group
from opbridge.vision.formulas.points import cells


def _samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(0)

    def sample(name: str, count: int, max_points: int, max_voxels: int) -> Sample:
        # Some points are outside of the range.
        points = 5 * torch.rand(count, 4, generator=generator) - 1
        return Sample((points, [1.0, 1.0, 2.0], [0.0, 0.0, -1.0, 4.0, 3.0, 3.0], max_points, max_voxels), name=name)

    return [sample("all points", 30, 9, 50), sample("too many points and voxels", 40, 2, 6)]


@operator("opbridge_vision::hard_voxelize", samples=_samples)
def hard_voxelize(
    points: Tensor, voxel_size: list[float], point_range: list[float], max_points: int, max_voxels: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The points of each voxel that has points, the voxels in the order of their first points.

    Points outside of the range, further points of a full voxel, and further voxels are left out.

    Args:
        points: (points, features), at least three features: x, y, z.
        voxel_size: The sizes of a voxel along x, y and z.
        point_range: The lowest x, y and z, and the highest.
        max_points: The largest number of points of a voxel.
        max_voxels: The largest number of voxels.

    Returns:
        The points, (voxels, max_points, features), with zeros after the last; the voxels as z, y, x, (voxels, 3),
        int64; the number of points of each voxel, (voxels,), int64.

    Raises:
        InputError: A number of values is wrong, or a size is not positive.
    """
    cell, (depth, height, width) = cells(points, voxel_size, point_range)
    outside = depth * height * width
    number = (cell[:, 0] * height + cell[:, 1]) * width + cell[:, 2]
    found = group(torch.where(cell[:, 0] < 0, outside, number))
    count = points.shape[0]
    # A voxel's first point is its first row; the group of the points outside comes last.
    first = torch.where(found.keys < outside, found.order[found.begins], count)
    ranked, by_first = torch.sort(first, stable=True)
    is_kept = (ranked < count) & (torch.ones_like(ranked).cumsum(0) <= max_voxels)
    chosen = by_first[is_kept]
    sizes = found.sizes[chosen].clamp(max=max_points)
    slots = torch.arange(max_points)
    rows = found.order[(found.begins[chosen][:, None] + slots).clamp(max=count - 1)]
    voxels = torch.where((slots < sizes[:, None])[..., None], points[rows], 0)
    return voxels, cell[found.order[found.begins[chosen]]], sizes


@hard_voxelize.fake
def _shape(
    points: Tensor, voxel_size: list[float], point_range: list[float], max_points: int, max_voxels: int
) -> tuple[Tensor, Tensor, Tensor]:
    cell, _ = cells(points, voxel_size, point_range)
    voxels = torch.library.get_ctx().new_dynamic_size()
    return points.new_empty(voxels, max_points, points.shape[1]), cell.new_empty(voxels, 3), cell.new_empty(voxels)


hard_voxelize.kernel("hard_voxelize.h")
