"""The next representable number, without access to bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::nextafter")
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The next number after ``self`` towards ``other`` (IEEE 754-2019, 5.3.1); NaN if either is NaN.

    nextafter(Tensor self, Tensor other) -> Tensor

    A step of slightly more than half the spacing, rounded to nearest, reaches the next number in either direction, also
    just below a power of two (Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding
    to nearest", BIT 49, 2009, algorithm 2). Small numbers are scaled, because their steps would be rounded; the
    smallest have the spacing of subnormal numbers.
    """
    start, goal = torch.broadcast_tensors(self, other)
    info = torch.finfo(start.dtype)
    unit = info.eps / 2
    smallest = info.smallest_normal * info.eps
    size = start.abs()
    is_scaled = (size < smallest / unit / unit) & (size >= smallest / unit)
    scaled = torch.where(is_scaled, start / unit, start)
    step = torch.where(size < smallest / unit, smallest, scaled.abs() * (unit * (1 + info.eps)))
    moved = torch.where(goal > start, scaled + step, scaled - step)
    moved = torch.where(is_scaled, moved * unit, moved)
    moved = torch.where(start.isinf(), torch.sign(start) * info.max, moved)
    # The negative number next to 0 moves to -0, to which half of it is rounded.
    moved = torch.where(moved == 0, start / 2, moved)
    result = torch.where(goal == start, goal, moved)
    return torch.where(start.isnan() | goal.isnan(), math.nan, result)
