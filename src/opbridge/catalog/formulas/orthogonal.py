"""Orthogonal polynomials of any degree, by their three-term recurrence (DLMF 18.9), as one ONNX Loop."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar, Union

import torch
from onnxscript import DOUBLE, FLOAT, INT64, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.formulas.element_types import FLOATS, HALVES

__all__ = ["Family", "as_tensor", "evaluate"]

Float = TypeVar("Float", bound=Union[FLOAT, DOUBLE])  # noqa: UP007 - onnxscript reads typing.Union


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of polynomials, defined by its recurrence.

    The first polynomials are p(0) = 1 and p(1) = a + b x, and for k >= 1

    p(k+1) = ((constant + constant_rise k + (slope + slope_rise k) x) p(k) - (weight + weight_rise k) p(k-1))
    / (1 + divisor_rise k).

    Attributes:
        first: The coefficients a and b.
        is_shifted: Whether x stands for 2 x - 1.
        limits: The degrees above which PyTorch returns NaN, in float32 and in float64; None if there are no limits.
    """

    first: tuple[float, float]
    slope: float = 0.0
    slope_rise: float = 0.0
    constant: float = 0.0
    constant_rise: float = 0.0
    weight: float = 0.0
    weight_rise: float = 0.0
    divisor_rise: float = 0.0
    is_shifted: bool = False
    limits: tuple[int, int] | None = None


@script()
def _climb(
    x: Float,  # type: ignore[valid-type]
    lowest: Float,  # type: ignore[valid-type]
    first: Float,  # type: ignore[valid-type]
    degree: INT64,  # type: ignore[valid-type]
    slope: float,
    slope_rise: float,
    constant: float,
    constant_rise: float,
    weight: float,
    weight_rise: float,
    divisor_rise: float,
) -> Float:  # type: ignore[valid-type]
    """Every element follows the recurrence up to its own degree; the loop ends at the highest degree."""
    one = op.Constant(value_int=1)
    zero = op.Constant(value_ints=[0])
    highest = op.ReduceMax(op.Concat(op.Reshape(degree, op.Constant(value_ints=[-1])), zero, axis=0), keepdims=0)
    earlier = lowest
    latest = first
    result = op.Where(op.Less(degree, one), lowest, first)
    k = one
    unfinished = op.Less(k, highest)
    while unfinished:
        step = op.CastLike(k, x)
        shift = op.CastLike(op.Constant(value_float=constant), x) + step * op.CastLike(
            op.Constant(value_float=constant_rise), x
        )
        factor = op.CastLike(op.Constant(value_float=slope), x) + step * op.CastLike(
            op.Constant(value_float=slope_rise), x
        )
        share = op.CastLike(op.Constant(value_float=weight), x) + step * op.CastLike(
            op.Constant(value_float=weight_rise), x
        )
        divisor = op.CastLike(op.Constant(value_float=1.0), x) + step * op.CastLike(
            op.Constant(value_float=divisor_rise), x
        )
        following = ((shift + factor * x) * latest - share * earlier) / divisor
        earlier = latest
        latest = following
        k = k + one
        result = op.Where(op.GreaterOrEqual(degree, k), latest, result)
        unfinished = op.Less(k, highest)
    return result


def evaluate(family: Family, x: Any, n: Any) -> Any:
    """The polynomials of degree ``n`` at ``x``, both ONNX values, broadcast; 0 for a degree below 0.

    A fractional degree is truncated towards 0. Float16 and bfloat16 are computed in float32.
    """
    given = next((value.dtype for value in (x, n) if value.dtype in FLOATS), FLOAT.dtype)
    working = DOUBLE.dtype if DOUBLE.dtype in (x.dtype, n.dtype) else FLOAT.dtype
    point, order = op.Cast(x, to=working), op.Cast(n, to=working)
    shape = op.Shape(op.Add(point, order))
    point, order = op.Expand(point, shape), op.Expand(order, shape)

    def number(value: float) -> Any:
        return op.Cast(op.Constant(value_float=value), to=working)

    if family.is_shifted:
        point = op.Sub(op.Add(point, point), number(1.0))
    usable = op.And(op.Equal(order, order), op.Less(op.Abs(order), number(2.0**62)))
    degree = op.Cast(op.Where(usable, order, number(-1.0)), to=INT64.dtype)
    if family.limits is not None:
        limit = family.limits[working == DOUBLE.dtype]
        too_high = op.Greater(degree, op.Constant(value_int=limit))
        degree = op.Min(degree, op.Constant(value_int=limit))
    lowest = op.Where(op.Less(degree, op.Constant(value_int=0)), number(0.0), number(1.0))
    first = op.Add(number(family.first[0]), op.Mul(number(family.first[1]), point))
    rule = {
        field.name: float(getattr(family, field.name))
        for field in dataclasses.fields(family)
        if field.name not in ("first", "is_shifted", "limits")
    }
    result = _climb(point, lowest, first, degree, **rule)
    if family.limits is not None:
        result = op.Where(too_high, number(math.nan), result)
    return op.Cast(result, to=given if working == FLOAT.dtype and given in HALVES else working)


def as_tensor(value: float, like: Tensor) -> Tensor:
    """A number as a tensor with the result dtype of the number and the tensor."""
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    return torch.scalar_tensor(value, dtype=dtype)
