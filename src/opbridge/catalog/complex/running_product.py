"""Products of many complex numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts, real_type
from opbridge.catalog.complex.rules import complex_rule


def _multiplied(z: Tensor, multiply: Callable[[Tensor], Tensor], add: Callable[[Tensor], Tensor]) -> Tensor:
    """The product of the absolute values at the sum of the angles.

    Angles are float64 in units of full turns, of which only the fraction matters, so that long products stay accurate.
    """
    real, imaginary = (part.to(torch.float64) for part in parts(z))
    size = multiply(torch.hypot(real, imaginary))
    turns = add(torch.atan2(imaginary, real) * (0.5 / math.pi))
    kind = real_type(z.dtype)
    angle = ((turns - torch.round(turns)) * (2 * math.pi)).to(kind)
    size = size.to(kind)
    return joined(size * torch.cos(angle), size * torch.sin(angle))


def _wanted(self: Tensor, dtype: torch.dtype | None) -> Tensor:
    return self if dtype is None else self.to(dtype)


@complex_rule("aten::prod")
def prod(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product of all elements."""
    return _multiplied(_wanted(self, dtype), torch.prod, torch.sum)


@complex_rule("aten::prod.dim_int")
def prod_along(self: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """The product along an axis."""
    options: dict[str, Any] = {"dim": dim, "keepdim": keepdim}
    return _multiplied(_wanted(self, dtype), lambda x: torch.prod(x, **options), lambda x: torch.sum(x, **options))


@complex_rule("aten::cumprod")
def cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """The cumulative products."""
    return _multiplied(_wanted(self, dtype), lambda x: torch.cumprod(x, dim), lambda x: torch.cumsum(x, dim))
