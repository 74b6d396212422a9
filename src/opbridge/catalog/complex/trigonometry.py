"""Circular and hyperbolic functions of complex numbers, and their inverses."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.complex.arithmetic import product
from opbridge.catalog.complex.elementary import Parts, square_root
from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule


def _turned(both: Parts) -> Parts:
    """The product i z."""
    return -both[1], both[0]


def _turned_back(both: Parts) -> Parts:
    """-i z."""
    return both[1], -both[0]


def _sinh(a: Tensor, b: Tensor) -> Parts:
    return torch.sinh(a) * torch.cos(b), torch.cosh(a) * torch.sin(b)


def _tanh(a: Tensor, b: Tensor) -> Parts:
    """(sinh a cosh a + i sin b cos b) / (sinh² a + cos² b); from 9 on the squares are exponentials alone."""
    sine, cosine = torch.sin(b), torch.cos(b)
    is_far = a.abs() > 9
    near = torch.where(is_far, 0.0, a)
    height = torch.sinh(near)
    norm = height * height + cosine * cosine
    real = torch.where(is_far, torch.sign(a), height * torch.cosh(near) / norm)
    return real, sine * cosine * torch.where(is_far, 4 * torch.exp(-2 * a.abs()), 1 / norm)


def _asin(a: Tensor, b: Tensor) -> Parts:
    """Kahan, "Branch cuts for complex elementary functions" (1987)."""
    left, right = square_root(1 - a, -b), square_root(1 + a, b)
    cross = left[0] * right[1] - left[1] * right[0]
    return torch.atan2(a, product(left, right)[0]), torch.asinh(cross)


def _acos(a: Tensor, b: Tensor) -> Parts:
    """Kahan (1987)."""
    left, right = square_root(1 - a, -b), square_root(1 + a, b)
    return 2 * torch.atan2(left[0], right[0]), torch.asinh(right[0] * left[1] - right[1] * left[0])


def _acosh(a: Tensor, b: Tensor) -> Parts:
    """Kahan (1987)."""
    left, right = square_root(a - 1, b), square_root(a + 1, b)
    return torch.asinh(left[0] * right[0] + left[1] * right[1]), 2 * torch.atan2(left[1], right[0])


def _atanh(a: Tensor, b: Tensor) -> Parts:
    """The logarithm of (1 + z) / (1 - z) by 2, with the real part from log1p and the imaginary one from one angle."""
    distance = (1 - a) * (1 - a) + b * b
    other = (1 + a) * (1 + a) + b * b
    nearer = torch.where(a >= 0, distance, other)
    real = torch.copysign(0.25 * torch.log1p(4 * a.abs() / nearer), a)
    return real, 0.5 * torch.atan2(2 * b, (1 - a) * (1 + a) - b * b)


@complex_rule("aten::sin")
def sin(self: Tensor) -> Tensor:
    """The sine."""
    return joined(*_turned_back(_sinh(*_turned(parts(self)))))


@complex_rule("aten::cos")
def cos(self: Tensor) -> Tensor:
    """The cosine."""
    a, b = parts(self)
    return joined(torch.cos(a) * torch.cosh(b), -torch.sin(a) * torch.sinh(b))


@complex_rule("aten::tan")
def tan(self: Tensor) -> Tensor:
    """The tangent."""
    return joined(*_turned_back(_tanh(*_turned(parts(self)))))


@complex_rule("aten::sinh")
def sinh(self: Tensor) -> Tensor:
    """The hyperbolic sine."""
    return joined(*_sinh(*parts(self)))


@complex_rule("aten::cosh")
def cosh(self: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    a, b = parts(self)
    return joined(torch.cosh(a) * torch.cos(b), torch.sinh(a) * torch.sin(b))


@complex_rule("aten::tanh")
def tanh(self: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return joined(*_tanh(*parts(self)))


@complex_rule("aten::asin")
def asin(self: Tensor) -> Tensor:
    """The inverse sine."""
    return joined(*_asin(*parts(self)))


@complex_rule("aten::acos")
def acos(self: Tensor) -> Tensor:
    """The inverse cosine."""
    return joined(*_acos(*parts(self)))


@complex_rule("aten::atan")
def atan(self: Tensor) -> Tensor:
    """The inverse tangent."""
    return joined(*_turned_back(_atanh(*_turned(parts(self)))))


@complex_rule("aten::asinh")
def asinh(self: Tensor) -> Tensor:
    """The inverse hyperbolic sine."""
    return joined(*_turned_back(_asin(*_turned(parts(self)))))


@complex_rule("aten::acosh")
def acosh(self: Tensor) -> Tensor:
    """The inverse hyperbolic cosine."""
    return joined(*_acosh(*parts(self)))


@complex_rule("aten::atanh")
def atanh(self: Tensor) -> Tensor:
    """The inverse hyperbolic tangent."""
    return joined(*_atanh(*parts(self)))
