"""The four operations, powers and conjugates of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.complex.elementary import exponential, logarithm, square_root
from opbridge.catalog.complex.pairs import joined, parts
from opbridge.catalog.complex.rules import complex_rule


def product(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """The product of a and b, given as parts."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def quotient(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    """The quotient of a and b, given as parts; both are scaled (Smith 1962) to prevent overflow of squares."""
    real, imaginary = (value if isinstance(value, Tensor) else torch.as_tensor(value) for value in b)
    scale = torch.maximum(real.abs(), imaginary.abs())
    scale = torch.where((scale == 0) | scale.isinf(), 1.0, scale).to(scale.dtype)
    c, d = real / scale, imaginary / scale
    x, y = a[0] / scale, a[1] / scale
    norm = c * c + d * d
    return (x * c + y * d) / norm, (y * c - x * d) / norm


@complex_rule("aten::add.Tensor", "aten::add.Scalar")
def add(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """The sum ``self + alpha * other``."""
    (a, b), (c, d) = parts(self), parts(other) if alpha == 1 else product(parts(other), parts(alpha))
    return joined(a + c, b + d)


@complex_rule("aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar")
def sub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """The difference ``self - alpha * other``."""
    (a, b), (c, d) = parts(self), parts(other) if alpha == 1 else product(parts(other), parts(alpha))
    return joined(a - c, b - d)


@complex_rule("aten::rsub.Tensor", "aten::rsub.Scalar")
def rsub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    """The difference ``other - alpha * self``."""
    (a, b), (c, d) = parts(self) if alpha == 1 else product(parts(self), parts(alpha)), parts(other)
    return joined(c - a, d - b)


@complex_rule("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar")
def mul(self: Any, other: Any) -> Tensor:
    """The product."""
    return joined(*product(parts(self), parts(other)))


@complex_rule(*(f"aten::{name}.{other}" for name in ("div", "divide", "true_divide") for other in ("Tensor", "Scalar")))
def div(self: Any, other: Any) -> Tensor:
    """The quotient."""
    if not isinstance(other, complex) and not (isinstance(other, Tensor) and other.is_complex()):
        return joined(*(part / other for part in parts(self)))
    return joined(*quotient(parts(self), parts(other)))


@complex_rule("aten::reciprocal")
def reciprocal(self: Tensor) -> Tensor:
    """1 / z."""
    return joined(*quotient((1.0, 0.0), parts(self)))


@complex_rule("aten::_conj", "aten::_conj_physical", "aten::conj_physical", "prims::conj_physical", "prims::conj")
def conj(self: Tensor) -> Tensor:
    """The conjugate."""
    real, imaginary = parts(self)
    return joined(real, -imaginary)


@complex_rule("aten::abs")
def absolute(self: Tensor) -> Tensor:
    """The absolute value."""
    return torch.hypot(*parts(self))


@complex_rule("aten::angle")
def angle(self: Tensor) -> Tensor:
    """The angle to the positive real axis."""
    real, imaginary = parts(self)
    return torch.atan2(imaginary, real)


@complex_rule("aten::sgn")
def sgn(self: Tensor) -> Tensor:
    """The sign z / |z|; 0 for 0."""
    real, imaginary = parts(self)
    size = torch.hypot(real, imaginary)
    is_zero = size == 0
    return joined(*(torch.where(is_zero, 0.0, part / torch.where(is_zero, 1.0, size)) for part in (real, imaginary)))


@complex_rule("aten::square")
def square(self: Tensor) -> Tensor:
    """The square."""
    return joined(*product(parts(self), parts(self)))


@complex_rule("aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar", "aten::pow.Scalar")
def power(self: Any, exponent: Any) -> Tensor:
    """exp(exponent log(self)); 1 for an exponent of 0; 0, NaN or infinite if only the base is 0."""
    if isinstance(exponent, int | float) and exponent in (0, 1, 2, 3, -1, -2, 0.5, -0.5):
        return _plain_power(self, exponent)
    base, times = _as_tensors(parts(self)), _as_tensors(parts(exponent))
    real, imaginary = exponential(*product(times, logarithm(*base)))
    is_one = (times[0] == 0) & (times[1] == 0)
    of_zero = (base[0] == 0) & (base[1] == 0)
    is_zero = of_zero & (times[0] > 0)
    real = torch.where(of_zero & (times[0] < 0), math.inf, real)
    real = torch.where(is_one, 1.0, torch.where(is_zero, 0.0, real))
    return joined(real, torch.where(is_one | is_zero, 0.0, imaginary))


def _as_tensors(both: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    first, second = (value if isinstance(value, Tensor) else torch.full((), float(value)) for value in both)
    return (first, second) if first.is_floating_point() else (first.float(), second.float())


def _plain_power(self: Tensor, exponent: float) -> Tensor:
    if exponent == 0:
        return torch.ones_like(self)
    if abs(exponent) == 0.5:
        root = joined(*square_root(*parts(self)))
        return root if exponent > 0 else torch.reciprocal(root)
    result = self
    for _ in range(int(abs(exponent)) - 1):
        result = result * self
    return result if exponent > 0 else torch.reciprocal(result)
