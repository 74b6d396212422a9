"""The inverse trigonometric functions in float64, and ``atan2`` in all types."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for, working_type
from opbridge.catalog.formulas.series import polynomial

_WHY = "engines support the inverse trigonometric functions only in float32"
_TOP = (-64.8502190494202537, -122.886668449013617, -75.0085579231470467, -16.1575371873336508, -0.875060860003190412)
_BOTTOM = (
    *(194.550657148261396, 485.390399635913696, 432.881060491290267, 165.027009831698855, 24.8584649014230630),
    1.0,
)
_STEEP, _MIDDLE = 2.41421356237309505, 0.66
"""tan(3 pi / 8), above which the reciprocal is used, and the limit above which the angle is relative to pi / 4."""


@decomposition("aten::atan", overrides=_WHY)
@only_for(torch.float64)
def atan(self: Tensor) -> Tensor:
    """The inverse tangent in (-pi/2, pi/2), for float64.

    atan(Tensor self) -> Tensor

    The argument is reduced to [-0.66, 0.66] by atan(x) = pi/2 - atan(1/x) = pi/4 + atan((x - 1) / (x + 1)). The
    approximation there is a quotient of polynomials from Cephes (atan.c).
    """
    size = self.abs()
    is_steep, is_flat = size > _STEEP, size <= _MIDDLE
    middle = (size - 1) / torch.where(size == math.inf, 1, size + 1)
    reduced = torch.where(is_steep, -1 / torch.where(is_steep, size, 1), torch.where(is_flat, size, middle))
    quarters = torch.where(is_steep, 2, torch.where(is_flat, 0, torch.ones_like(size)))
    square = reduced * reduced
    angle = quarters * (math.pi / 4) + (
        reduced + reduced * square * (polynomial(square, _TOP) / polynomial(square, _BOTTOM))
    )
    return torch.where(self < 0, -angle, torch.where(self == 0, self, angle))


@decomposition("aten::asin", overrides=_WHY)
@only_for(torch.float64)
def asin(self: Tensor) -> Tensor:
    """The inverse sine in [-pi/2, pi/2], for float64: 2 atan(x / (1 + sqrt(1 - x²))).

    asin(Tensor self) -> Tensor
    """
    return 2 * torch.atan(self / (1 + torch.sqrt((1 - self) * (1 + self))))


@decomposition("aten::acos", overrides=_WHY)
@only_for(torch.float64)
def acos(self: Tensor) -> Tensor:
    """The inverse cosine in [0, pi], for float64: 2 atan(sqrt((1 - x) / (1 + x))).

    acos(Tensor self) -> Tensor
    """
    return 2 * torch.atan(torch.sqrt((1 - self) / (1 + self)))


@decomposition("aten::atan2", overrides="torch's mapping returns -pi for 0 and a negative number, and 0 for NaN")
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (``other``, ``self``) in [-pi, pi].

    atan2(Tensor self, Tensor other) -> Tensor

    The angle of the slope, plus half a turn for negative ``other``, with the special cases of C's Annex F.
    """
    given = torch.result_type(self, other)
    dtype = given if given.is_floating_point else torch.get_default_dtype()
    working = working_type(dtype)
    y, x = self.to(working), other.to(working)
    # The sign, also of zeros and infinities: the reciprocal of a number in [-1, 1] has magnitude 1 or more.
    sign_y, sign_x = ((1 / number.clamp(-1, 1)).clamp(-1, 1) for number in (y, x))
    slope = y / x
    # 0 / 0 and inf / inf are replaced by 0 and 1. NaN must propagate here, because engines differ in clamping NaN.
    slope = torch.where(slope.isnan(), torch.tanh(y * x), slope)
    half_turn = sign_y * (math.pi / 2 - sign_x * (math.pi / 2))
    return (torch.atan(slope) + half_turn).to(dtype)
