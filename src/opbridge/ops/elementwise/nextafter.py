"""The next number that a type has, without looking at bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::nextafter")
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The number next to ``self`` in the direction of ``other`` (IEEE 754-2019, 5.3.1); NaN where either is.

    nextafter(Tensor self, Tensor other) -> Tensor

    The spacing is a power of two: of the mantissa's last digit, halved just below a power of two, and no smaller than
    that of the denormal numbers.
    """
    start, goal = torch.broadcast_tensors(self, other)
    info = torch.finfo(start.dtype)
    smallest = info.smallest_normal * info.eps
    mantissa, exponent = torch.frexp(start)
    is_inward = (start > 0) & (goal < start) | (start < 0) & (goal > start)
    below_power = is_inward & (mantissa.abs() == 0.5)
    # frexp's mantissa is below 1, so the last digit of a number with the exponent e weighs eps 2**(e - 1).
    digit = exponent - 1 - below_power.to(exponent.dtype)
    lowest = int(math.log2(info.smallest_normal))
    spacing = torch.exp2(digit.clamp_min(lowest).to(start.dtype)) * info.eps
    step = torch.where(start == 0, smallest, spacing)
    moved = torch.where(goal > start, start + step, start - step)
    moved = torch.where(start.isinf(), torch.sign(start) * info.max, moved)
    # A negative number next to 0 moves to -0.
    moved = torch.where((moved == 0) & (start < 0), -0.0, moved)
    result = torch.where(goal == start, goal, moved)
    return torch.where(start.isnan() | goal.isnan(), math.nan, result)
