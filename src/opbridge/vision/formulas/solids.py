"""Boxes in space: x, y, z, their sizes along these axes, and the angle in radians from the x axis to the y axis."""

import torch
from torch import Tensor

from opbridge.vision.formulas.rotated import shared_areas

__all__ = ["contain", "seen_from_above", "shared_volumes", "volumes"]


def seen_from_above(boxes: Tensor) -> Tensor:
    """The rotated boxes (..., 5) that boxes (..., 7) are in the bird's-eye view."""
    return torch.cat([boxes[..., 0:2], boxes[..., 3:5], boxes[..., 6:7]], -1)


def volumes(boxes: Tensor) -> Tensor:
    """The volumes (...) of boxes (..., 7)."""
    return boxes[..., 3:6].clamp(min=0).prod(-1)


def shared_volumes(first: Tensor, second: Tensor) -> Tensor:
    """The volumes (...) that boxes (..., 7), given by their centres, share with others."""
    half, other_half = (boxes[..., 5].clamp(min=0) / 2 for boxes in (first, second))
    z, other_z = first[..., 2], second[..., 2]
    height = torch.minimum(z + half, other_z + other_half) - torch.maximum(z - half, other_z - other_half)
    return shared_areas(seen_from_above(first), seen_from_above(second)) * height.clamp(min=0)


def contain(points: Tensor, boxes: Tensor) -> Tensor:
    """Whether each point (batch, m, 3) is in each box (batch, t, 7), given by the centre of its bottom: (batch, m, t).

    A point on the bottom or the top of a box is in it, a point on another side is not.
    """
    x, y, z = (points[:, :, None] - boxes[:, None, :, :3]).unbind(-1)
    half_x, half_y, half_z = (boxes[:, None, :, 3:6] / 2).unbind(-1)
    cosine, sine = boxes[:, None, :, 6].cos(), boxes[:, None, :, 6].sin()
    along, across = x * cosine + y * sine, y * cosine - x * sine
    return ((z - half_z).abs() <= half_z) & (along.abs() < half_x) & (across.abs() < half_y)
