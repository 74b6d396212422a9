"""The voxel of each point of a cloud."""

import torch
from torch import Tensor

from opbridge.catalog.declare.operator import operator
from opbridge.catalog.declare.spec import Sample
from opbridge.vision.formulas.points import cells


def _samples() -> list[Sample]:
    # Some points are outside of the range.
    points = 5 * torch.rand(20, 4, generator=torch.Generator().manual_seed(0)) - 1
    return [Sample((points, [0.5, 1.0, 2.0], [0.0, 0.0, -1.0, 4.0, 3.0, 3.0]), name="points with a feature")]


@operator("opbridge_vision::dynamic_voxelize", samples=_samples)
def dynamic_voxelize(points: Tensor, voxel_size: list[float], point_range: list[float]) -> Tensor:
    """The voxel of each point as z, y, x: (points, 3), int64; -1, -1, -1 for points outside of the range.

    Args:
        points: (points, 3 or more): x, y, z, and other features.
        voxel_size: The sizes of a voxel along x, y and z.
        point_range: The lowest x, y and z, and the highest.

    Raises:
        InputError: A number of values is wrong, or a size is not positive.
    """
    return cells(points, voxel_size, point_range)[0]


dynamic_voxelize.kernel("dynamic_voxelize.h")
