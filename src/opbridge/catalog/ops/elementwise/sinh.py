"""The hyperbolic functions, their inverses and the tangent in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "engines support the hyperbolic functions only in float32"
_LARGE = 2.0**28
"""From this number on, adding 1 to the square does not change it."""


@decomposition("aten::sinh", overrides=_WHY)
@only_for(torch.float64)
def sinh(self: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2, for float64: from expm1 for small x, and from exp(x / 2) where exp(x) may overflow.

    sinh(Tensor self) -> Tensor
    """
    size = self.abs()
    less = torch.expm1(size.clamp(0.0, 2.0))
    near = (less + less / (less + 1)) / 2
    root = torch.exp(size / 2)
    far = root / 2 * root - 0.5 / root / root
    result = torch.where(size < 1, near, far)
    return torch.where(self < 0, -result, torch.where(self == 0, self, result))


@decomposition("aten::cosh", overrides=_WHY)
@only_for(torch.float64)
def cosh(self: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2, for float64, from exp(x / 2), which overflows later.

    cosh(Tensor self) -> Tensor
    """
    root = torch.exp(self.abs() / 2)
    return root / 2 * root + 0.5 / root / root


@decomposition("aten::asinh", overrides=_WHY)
@only_for(torch.float64)
def asinh(self: Tensor) -> Tensor:
    """log(x + sqrt(x² + 1)), for float64, by log1p (fdlibm, s_asinh.c).

    asinh(Tensor self) -> Tensor
    """
    size = self.abs()
    is_large = size > _LARGE
    small = torch.where(is_large, 1, size)
    square = small * small
    near = torch.log1p(small + square / (1 + torch.sqrt(1 + square)))
    result = torch.where(is_large, torch.log(size) + math.log(2), near)
    return torch.where(self < 0, -result, torch.where(self == 0, self, result))


@decomposition("aten::acosh", overrides=_WHY)
@only_for(torch.float64)
def acosh(self: Tensor) -> Tensor:
    """log(x + sqrt(x² - 1)), for float64, by log1p (fdlibm, e_acosh.c); NaN below 1.

    acosh(Tensor self) -> Tensor
    """
    is_large = self > _LARGE
    above = torch.where(is_large, 1, self - 1)
    near = torch.log1p(above + torch.sqrt(above * (above + 2)))
    return torch.where(self < 1, math.nan, torch.where(is_large, torch.log(self) + math.log(2), near))


@decomposition("aten::atanh", overrides=_WHY)
@only_for(torch.float64)
def atanh(self: Tensor) -> Tensor:
    """log((1 + x) / (1 - x)) / 2, for float64, by log1p (fdlibm, e_atanh.c).

    atanh(Tensor self) -> Tensor
    """
    size = self.abs()
    result = torch.log1p(2 * size / (1 - size)) / 2
    return torch.where(self < 0, -result, torch.where(self == 0, self, result))


@decomposition("aten::tan", overrides="engines do not support Tan in float64")
@only_for(torch.float64)
def tan(self: Tensor) -> Tensor:
    """sin(x) / cos(x), for float64.

    tan(Tensor self) -> Tensor
    """
    return torch.sin(self) / torch.cos(self)
