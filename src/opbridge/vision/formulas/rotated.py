"""Rotated boxes: centre x and y, width, height, and angle in radians."""

import torch
from torch import Tensor

__all__ = ["areas", "overlaps", "shared_areas"]


def _fraction(start: Tensor, stop: Tensor, at: Tensor) -> Tensor:
    """The position of ``at`` between ``start`` (0) and ``stop`` (1), clamped; 0 where the two are equal."""
    length = stop - start
    return ((at - start) / torch.where(length == 0, 1, length)).clamp(0, 1) * (length != 0)


def areas(boxes: Tensor) -> Tensor:
    """The areas (...) of boxes (..., 5)."""
    return boxes[..., 2:4].clamp(min=0).prod(-1)


def shared_areas(first: Tensor, second: Tensor) -> Tensor:
    """The areas (...) that the boxes of ``first`` (..., 5) share with those of ``second`` (..., 5).

    In the frame of the first box, in which it is upright, the shared area is the integral of y dx around the second
    box, with x and y clamped to the first. A clamped edge has at most two bends, at the top and at the bottom, so no
    intersections have to be sorted, and boxes that coincide are no special case.
    """
    x, y, width, height, angle = first.unbind(-1)
    other_x, other_y, other_width, other_height, other_angle = second.unbind(-1)
    right, top = width.clamp(min=0) / 2, height.clamp(min=0) / 2
    half_width, half_height = other_width.clamp(min=0) / 2, other_height.clamp(min=0) / 2
    cosine, sine = angle.cos(), angle.sin()
    dx, dy = other_x - x, other_y - y
    turned_x, turned_y = dx * cosine + dy * sine, dy * cosine - dx * sine
    turn = other_angle - angle
    along_x, along_y = half_width * turn.cos(), half_width * turn.sin()
    across_x, across_y = -half_height * turn.sin(), half_height * turn.cos()
    signs = ((1, 1), (-1, 1), (-1, -1), (1, -1))
    x0 = torch.stack([turned_x + along * along_x + across * across_x for along, across in signs], -1)
    y0 = torch.stack([turned_y + along * along_y + across * across_y for along, across in signs], -1)
    x1, y1 = torch.roll(x0, -1, -1), torch.roll(y0, -1, -1)

    right, top = right[..., None], top[..., None]
    begin_x, end_x = torch.minimum(torch.maximum(x0, -right), right), torch.minimum(torch.maximum(x1, -right), right)
    begin = y0 + _fraction(x0, x1, begin_x) * (y1 - y0)
    end = y0 + _fraction(x0, x1, end_x) * (y1 - y0)
    bends = _fraction(begin, end, -top), _fraction(begin, end, top)
    zero = torch.zeros_like(begin)
    ats = [zero, torch.minimum(*bends), torch.maximum(*bends), zero + 1]
    heights = [torch.minimum(torch.maximum(begin + at * (end - begin), -top), top) for at in ats]
    mean = sum((ats[k + 1] - ats[k]) * (heights[k] + heights[k + 1]) for k in range(3)) / 2
    return ((begin_x - end_x) * mean).sum(-1)


def overlaps(boxes: Tensor, threshold: float) -> Tensor:
    """Whether each two boxes share more than ``threshold`` of the area that they cover: (..., n, n) for (..., n, 5)."""
    shared, area = shared_areas(boxes[..., :, None, :], boxes[..., None, :, :]), areas(boxes)
    return shared > threshold * (area[..., :, None] + area[..., None, :] - shared)
