"""Clouds of points: distances, and the cells of a grid."""

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.errors import InputError
from opbridge.vision.formulas.precision import widened

__all__ = ["cells", "squared_distances"]


def squared_distances(queries: Tensor, points: Tensor) -> Tensor:
    """The squared distances (..., m, n) of the points (..., n, axes) from the queries (..., m, axes)."""
    return (queries[..., :, None, :] - points[..., None, :, :]).square().sum(-1)


def cells(points: Tensor, voxel_size: Sequence[float], point_range: Sequence[float]) -> tuple[Tensor, list[int]]:
    """The cell of each point, (points, 3) as z, y, x, int64, with -1 for points outside; and the numbers of cells.

    Raises:
        InputError: A number of values is wrong, or a size is not positive.
    """
    if len(voxel_size) != 3 or len(point_range) != 6 or min(voxel_size, default=0) <= 0:
        raise InputError(
            f"voxel_size is {list(voxel_size)} and point_range {list(point_range)}.",
            fix="pass three positive sizes, and six numbers: the lowest x, y and z, then the highest.",
        )
    counts = [round((point_range[3 + k] - point_range[k]) / voxel_size[k]) for k in range(3)]
    points = widened(points)
    low, size = (torch.tensor(list(numbers), dtype=points.dtype) for numbers in (point_range[:3], voxel_size))
    cell = ((points[:, :3] - low) / size).floor()
    inside = ((cell >= 0) & (cell < torch.tensor(counts, dtype=points.dtype))).all(1, keepdim=True)
    return torch.where(inside, cell, -1).to(torch.int64).flip(1), counts[::-1]
