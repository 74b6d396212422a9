"""Exponentials, logarithms and roots of complex numbers, from those of real ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule

Parts = tuple[Tensor, Tensor]


def exponential(a: Tensor, b: Tensor) -> Parts:
    """exp(a + i b) = e^a (cos b + i sin b); real if b is 0, also if e^a is infinite."""
    size = torch.exp(a)
    return torch.where(b == 0, size, size * torch.cos(b)), torch.where(b == 0, b, size * torch.sin(b))


def log_of_size(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of |a + i b|; near 1 it is computed from the distance to 1 for accuracy."""
    x, y = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = torch.where(x == 0, 0.0, y / torch.where((x == 0) | x.isinf(), 1.0, x))
    far = torch.log(x) + 0.5 * torch.log1p(ratio * ratio)
    is_near = (x > 0.7) & (x < 1.5)
    # The squared numbers are below 1.5 here; elsewhere the squares could overflow.
    p, q = torch.where(is_near, x, 1.0), torch.where(is_near, y, 0.0)
    return torch.where(is_near, 0.5 * torch.log1p((p - 1) * (p + 1) + q * q), far)


def logarithm(a: Tensor, b: Tensor) -> Parts:
    """log(a + i b), the imaginary part from -pi to pi."""
    return log_of_size(a, b), torch.atan2(b, a)


def square_root(a: Tensor, b: Tensor) -> Parts:
    """The root with a real part of 0 or more, its imaginary part with the sign of b.

    The part that is a sum of numbers of equal sign is computed first, the other part from b = 2 x y (Numerical Recipes,
    5.4). All numbers are scaled by a power of 4 to prevent overflow.
    """
    size = torch.maximum(a.abs(), b.abs())
    is_huge, is_tiny = size > 1e18, size < 1e-18
    scale = torch.where(is_huge, 2.0**-40, torch.where(is_tiny, 2.0**60, 1.0)).to(a.dtype)
    back = torch.where(is_huge, 2.0**20, torch.where(is_tiny, 2.0**-30, 1.0)).to(a.dtype)
    c, d = a * scale, b * scale
    larger = torch.sqrt(0.5 * (c.abs() + torch.hypot(c, d)))
    smaller = torch.where(larger == 0, 0.0, d.abs() / (2 * torch.where(larger == 0, 1.0, larger)))
    real, imaginary = torch.where(c >= 0, larger, smaller), torch.where(c >= 0, smaller, larger)
    return real * back, torch.copysign(imaginary, b) * back


@complex_rule("aten::exp")
def exp(self: Tensor) -> Tensor:
    """e^z."""
    return joined(*exponential(*parts(self)))


@complex_rule("aten::exp2")
def exp2(self: Tensor) -> Tensor:
    """2^z."""
    return joined(*exponential(*(part * math.log(2) for part in parts(self))))


@complex_rule("aten::expm1")
def expm1(self: Tensor) -> Tensor:
    """e^z - 1 = (e^a - 1) cos b - 2 sin²(b/2) + i e^a sin b."""
    a, b = parts(self)
    half = torch.sin(0.5 * b)
    return joined(torch.expm1(a) * torch.cos(b) - 2 * half * half, torch.exp(a) * torch.sin(b))


@complex_rule("aten::log")
def log(self: Tensor) -> Tensor:
    """The natural logarithm."""
    return joined(*logarithm(*parts(self)))


@complex_rule("aten::log2")
def log2(self: Tensor) -> Tensor:
    """The logarithm to base 2."""
    return joined(*(part * (1 / math.log(2)) for part in logarithm(*parts(self))))


@complex_rule("aten::log10")
def log10(self: Tensor) -> Tensor:
    """The logarithm to base 10."""
    return joined(*(part * (1 / math.log(10)) for part in logarithm(*parts(self))))


@complex_rule("aten::log1p")
def log1p(self: Tensor) -> Tensor:
    """log(1 + z); |1 + z|² - 1 = a (2 + a) + b² is accurate for small z."""
    a, b = parts(self)
    is_near = (a.abs() < 0.5) & (b.abs() < 0.5)
    p, q = torch.where(is_near, a, 0.0), torch.where(is_near, b, 0.0)
    near = 0.5 * torch.log1p(p * (2 + p) + q * q)
    return joined(torch.where(is_near, near, log_of_size(1 + a, b)), torch.atan2(b, 1 + a))


@complex_rule("aten::sqrt")
def sqrt(self: Tensor) -> Tensor:
    """The square root in the right half plane."""
    return joined(*square_root(*parts(self)))


@complex_rule("aten::rsqrt")
def rsqrt(self: Tensor) -> Tensor:
    """1 / sqrt(z)."""
    return torch.reciprocal(torch.sqrt(self))


@complex_rule("aten::sigmoid")
def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + e^-z)."""
    return torch.reciprocal(torch.exp(-self) + 1)


@complex_rule("aten::silu")
def silu(self: Tensor) -> Tensor:
    """SiLU: z / (1 + e^-z)."""
    return self / (torch.exp(-self) + 1)


@complex_rule("aten::sinc")
def sinc(self: Tensor) -> Tensor:
    """sin(pi z) / (pi z), and 1 at 0."""
    a, b = parts(self)
    is_zero = (a == 0) & (b == 0)
    safe = joined(torch.where(is_zero, 1.0, math.pi * a), math.pi * b)
    real, imaginary = parts(torch.sin(safe) / safe)
    return joined(torch.where(is_zero, 1.0, real), torch.where(is_zero, 0.0, imaginary))
