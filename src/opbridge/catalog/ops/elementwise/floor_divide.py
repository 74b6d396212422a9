"""Floor division from exact quotients: 1 // 0.1 is 9, because 0.1 in float32 is greater than 1/10."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import BOOL, DOUBLE, FLOAT
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.element_types import FLOATING, HALVES

_COMPUTED = (FLOAT.dtype, DOUBLE.dtype)
_FAR = 1e60
"""A number that exceeds every float32 and is finite in float64."""
_WHY = "torch's mapping floors a rounded quotient: 1 // 0.1 would be 10"


@translation("aten::floor_divide.default", overrides=_WHY)
def floor_divide(self: Any, other: Any) -> Any:
    """The quotient rounded down.

    floor_divide(Tensor self, Tensor other) -> Tensor

    float32 and narrower types are divided in float64. A quotient of two 24-bit significands that is not an integer is
    not rounded to an integer with 53 bits, unless the integer itself has more than 24 bits.
    """
    given = other.dtype if isinstance(self, int | float) else self.dtype
    working = FLOAT.dtype if given in HALVES else given
    a, b = (constant(x, working) if isinstance(x, int | float) else op.Cast(x, to=working) for x in (self, other))
    number = number_of(other)
    if working not in _COMPUTED:
        return _of_integers(a, b, number, working)
    if number is not None:
        b = constant(number, working)
    if _is_whole(number) or is_power_of_two(number):
        # Below 2**23 the quotient of two integers of 24 bits rounds to an integer only if it is one.
        quotient = op.Floor(op.Div(op.Floor(a), b))
    elif working == DOUBLE.dtype:
        quotient = _by_remainder(a, b)
    else:
        # In PyTorch a negative number divided by infinity is -1, as for every large divisor.
        far = op.Clip(op.Cast(b, to=DOUBLE.dtype), constant(-_FAR, DOUBLE.dtype), constant(_FAR, DOUBLE.dtype))
        quotient = op.Cast(op.Floor(op.Div(op.Cast(a, to=DOUBLE.dtype), far)), to=working)
    # In PyTorch infinity divided by a number other than 0 is NaN.
    if not keeps_nan():
        return op.Cast(quotient, to=given)
    if number:
        quotient = op.Sub(quotient, op.Sub(a, a))
    else:
        is_left = op.Or(op.Not(op.IsInf(a)), op.Equal(b, constant(0, working)))
        quotient = op.Mul(quotient, op.Cast(is_left, to=working))
    return op.Cast(quotient, to=given)


def _is_whole(value: object) -> bool:
    """Whether the divisor is a constant positive integer of float32's 24 bits.

    The integers of such a divisor that a float32 can be are as far from their neighbors, divided by it, as the quotient
    is from its own, so that no quotient below 2**23 is rounded to an integer above it. Larger quotients have no
    fractional digits, and are rounded as other results are.
    """
    return isinstance(value, int | float) and 1 <= value < 2**24 and value == math.floor(value)


def is_power_of_two(value: object) -> bool:
    """Whether the divisor is a constant power of 2 (1, 2, 4, ...), for which floating-point division is exact."""
    return isinstance(value, int | float) and 1 <= value <= 2**24 and math.frexp(value)[0] == 0.5


def _of_integers(a: Any, b: Any, number: float | None, dtype: ir.DataType) -> Any:
    """Floor division from ONNX's division, which rounds towards 0."""
    quotient = op.Div(a, b)
    if not dtype.is_signed():
        return quotient
    product = op.Mul(quotient, b)
    is_above = op.Less(a, product)
    if number is None or number < 0:
        # For a negative divisor the comparison is reversed. OpenPPL has neither Or nor Xor.
        is_below, is_negative = op.Less(product, a), op.Less(b, constant(0, dtype))
        is_floor = op.And(op.Not(op.And(is_above, op.Not(is_negative))), op.Not(op.And(is_below, is_negative)))
        is_above = op.Not(is_floor)
    return op.Sub(quotient, op.Cast(is_above, to=dtype))


def _by_remainder(a: Any, b: Any) -> Any:
    zero = constant(0, DOUBLE.dtype)
    rest = op.Mod(a, b, fmod=1)
    is_above = op.And(op.Cast(rest, to=BOOL.dtype), op.Xor(op.Less(rest, zero), op.Less(b, zero)))
    # The quotient is an integer except for rounding.
    quotient = op.Sub(op.Round(op.Div(op.Sub(a, rest), b)), op.CastLike(is_above, a))
    return op.Where(op.Equal(b, zero), op.Div(a, b), quotient)


def number_of(value: Any) -> float | None:
    """The value of a constant of rank 0."""
    if isinstance(value, int | float):
        return value
    constant = ir.convenience.get_const_tensor(value)
    return constant.numpy().item() if constant is not None and len(constant.shape) == 0 else None


def constant(number: float, dtype: ir.DataType) -> Any:
    """A number as a tensor of rank 0."""
    return op.Constant(value=ir.tensor(np.asarray(number, dtype.numpy())))


@decomposition("aten::floor_divide", overrides=_WHY)
def floor_divide_without_float64(self: Any, other: Any) -> Tensor:
    """The quotient rounded down, for engines without float64.

    floor_divide(Tensor self, Tensor other) -> Tensor

    The result is computed from ``fmod``, which is exact, as in PyTorch (``div_floor`` in
    aten/native/cpu/BinaryOpsKernel.cpp).
    """
    dtype = torch.result_type(self, other)
    if dtype not in FLOATING:
        return NotImplemented
    a, b = (x.to(dtype) if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=dtype) for x in (self, other))
    if is_power_of_two(other):
        quotient = torch.floor(torch.floor(a) / b)
        return quotient - (a - a) if keeps_nan() else quotient
    rest = torch.fmod(a, b)
    is_above = (rest != 0) & ((rest < 0) != (b < 0))
    # The quotient is an integer except for rounding.
    quotient = torch.round((a - rest) / b) - is_above.to(dtype)
    return torch.where(b == 0, a / b, quotient)
