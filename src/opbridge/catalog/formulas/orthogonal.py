"""Orthogonal polynomials of any degree, by their three-term recurrence (DLMF 18.9): unrolled, a Loop, or a kernel."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar, Union

import torch
from onnxscript import DOUBLE, FLOAT, INT64, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.formulas.element_types import FLOATS, HALVES, working_type

__all__ = ["Family", "as_tensor", "evaluate", "evaluate_with_kernel", "unrolled"]

_MOST_STEPS = 32
"""The highest degree up to which the recurrence of a known degree is unrolled."""

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
    working, result_type = _types(x, n)
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
    result = _climb(point, lowest, first, degree, **_recurrence(family))
    if family.limits is not None:
        result = op.Where(too_high, number(math.nan), result)
    return op.Cast(result, to=result_type)


def evaluate_with_kernel(name: str, family: Family, x: Any, n: Any) -> Any:
    """``evaluate`` as a custom node with a kernel; ``name`` is that of the function in ``torch.special``."""
    working, result_type = _types(x, n)
    scale, offset = (2.0, -1.0) if family.is_shifted else (1.0, 0.0)
    limit = -1 if family.limits is None else family.limits[working == DOUBLE.dtype]
    result = custom_node(
        "opbridge::OrthogonalPolynomial",
        op.Cast(x, to=working),
        op.Cast(n, to=working),
        family=name,
        rule=[*map(float, family.first), *_recurrence(family).values(), scale, offset],
        limit=limit,
    )
    return op.Cast(result, to=result_type)


def unrolled(family: Family, x: Tensor, n: float) -> Tensor | None:
    """The polynomial of a known degree as products and sums; None for a high or fractional degree."""
    if not isinstance(n, int | float) or not -_MOST_STEPS <= n <= _MOST_STEPS or n != int(n):
        return None
    given = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    dtype = working_type(given)
    if n < 1:
        return torch.full_like(x, 0 if n < 0 else 1, dtype=given)
    point = 2 * x.to(dtype) - 1 if family.is_shifted else x.to(dtype)
    earlier: Tensor | float = 1.0
    latest = _line(*family.first, point)
    rule = _recurrence(family)
    for k in range(1, int(n)):
        shift, factor, share = (rule[name] + rule[f"{name}_rise"] * k for name in ("constant", "slope", "weight"))
        following = _line(shift, factor, point) * latest - (earlier if share == 1 else share * earlier)
        divisor = 1 + rule["divisor_rise"] * k
        earlier, latest = latest, following if divisor == 1 else following / divisor
    return latest.to(given)


def _line(constant: float, slope: float, x: Tensor) -> Tensor:
    product = x if slope == 1 else slope * x
    return product + constant if constant else product


def _types(x: Any, n: Any) -> tuple[Any, Any]:
    """The element types of the computation and of the result."""
    given = next((value.dtype for value in (x, n) if value.dtype in FLOATS), FLOAT.dtype)
    working = DOUBLE.dtype if DOUBLE.dtype in (x.dtype, n.dtype) else FLOAT.dtype
    return working, given if working == FLOAT.dtype and given in HALVES else working


def _recurrence(family: Family) -> dict[str, float]:
    """The coefficients of the recurrence by name, in the order of the fields."""
    return {
        field.name: float(getattr(family, field.name))
        for field in dataclasses.fields(family)
        if field.name not in ("first", "is_shifted", "limits")
    }


def as_tensor(value: float, like: Tensor) -> Tensor:
    """A number as a tensor with the result dtype of the number and the tensor."""
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    return torch.scalar_tensor(value, dtype=dtype)
