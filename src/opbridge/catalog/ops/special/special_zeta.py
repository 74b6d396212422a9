"""The Hurwitz zeta function, by the Euler-Maclaurin formula."""

from __future__ import annotations

import math
from typing import Any, TypeVar, Union

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import DOUBLE, FLOAT, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, translation
from opbridge.catalog.formulas.element_types import HALVES

# The Bernoulli numbers B2, B4, ..., B24.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
              854513 / 138, -236364091 / 2730)  # fmt: skip

Float = TypeVar("Float", bound=Union[FLOAT, DOUBLE])  # noqa: UP007 - onnxscript reads typing.Union


@script()
def _leading_terms(s: Float, q: Float, nine: Float) -> tuple[Float, Float, Float]:  # type: ignore[valid-type]
    """The sum of (q + k)**-s until k is 9 and q + k exceeds 9 for all elements."""
    one = op.CastLike(op.Constant(value_float=1.0), q)
    place = q
    total = op.Pow(q, op.Neg(s))
    term = total
    count = op.CastLike(op.Constant(value_float=0.0), nine)
    unfinished = op.Less(count, nine)
    while unfinished:
        # Adding 1 may not change a large negative number, which would never exceed 9.
        is_moving = op.Not(op.Equal(place + one, place))
        goes_on = op.And(op.Or(op.Less(count, nine), op.LessOrEqual(place, nine)), is_moving)
        place = op.Where(goes_on, place + one, place)
        term = op.Where(goes_on, op.Pow(place, op.Neg(s)), term)
        total = op.Where(goes_on, total + term, total)
        count = count + one
        is_open = op.And(op.LessOrEqual(place, nine), is_moving)
        left = op.ReduceSum(op.Cast(is_open, to=7), keepdims=0)
        unfinished = op.Or(op.Less(count, nine), op.Greater(left, op.Constant(value_int=0)))
    return total, term, place


@translation("aten::special_zeta")
def special_zeta(self: Any, other: Any) -> Any:
    """The sum of (q + k)**-s over k = 0, 1, 2, ...; infinite for s = 1 and for q = 0, -1, ..., NaN for s < 1.

    special_zeta(Tensor self, Tensor other) -> Tensor

    The first terms are added one by one, and the Euler-Maclaurin formula (DLMF 25.11.5) yields the rest. For a negative
    q the function is defined only for integer s.
    """
    working = DOUBLE.dtype if DOUBLE.dtype in (self.dtype, other.dtype) else FLOAT.dtype
    s, q = op.Cast(self, to=working), op.Cast(other, to=working)
    shape = op.Shape(op.Add(s, q))
    s, q = op.Expand(s, shape), op.Expand(q, shape)

    def number(value: float) -> Any:
        return op.Cast(op.Constant(value=ir.tensor(np.asarray(value, np.float64))), to=working)

    zero, one = number(0.0), number(1.0)
    total, term, place = _leading_terms(s, q, number(9.0))
    total = op.Add(total, op.Div(op.Mul(term, place), op.Sub(s, one)))
    total = op.Sub(total, op.Mul(term, number(0.5)))
    factor = op.Div(op.Mul(s, term), place)
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = op.Add(total, op.Mul(factor, number(bernoulli / math.factorial(2 * k))))
        step = op.Mul(op.Add(s, number(2.0 * k - 1)), op.Add(s, number(2.0 * k)))
        factor = op.Div(op.Mul(factor, step), op.Mul(place, place))
    # For a large s only the first term matters, and the factors would overflow.
    total = op.Where(op.Greater(s, number(120.0)), op.Pow(q, op.Neg(s)), total)
    is_whole = op.Equal(op.Floor(q), q)
    undefined = op.And(op.Less(q, zero), op.Not(op.Equal(op.Floor(s), s)))
    nan, infinity = number(math.nan), number(math.inf)
    total = op.Where(undefined, nan, total)
    total = op.Where(op.And(op.LessOrEqual(q, zero), is_whole), infinity, total)
    total = op.Where(op.Equal(s, one), infinity, op.Where(op.Less(s, one), nan, total))
    result_type = self.dtype if self.dtype == other.dtype and self.dtype in HALVES else working
    return op.Cast(total, to=result_type)


@decomposition("aten::special_zeta.self_scalar")
def special_zeta_of_number(self: float, other: Tensor) -> Tensor:
    """The zeta function of a number s and a tensor q.

    special_zeta.self_scalar(Scalar self, Tensor other) -> Tensor
    """
    dtype = other.dtype if other.is_floating_point() else torch.get_default_dtype()
    return torch.special.zeta(torch.scalar_tensor(self, dtype=dtype), other)


@decomposition("aten::special_zeta.other_scalar")
def special_zeta_at_number(self: Tensor, other: float) -> Tensor:
    """The zeta function of a tensor s and a number q.

    special_zeta.other_scalar(Tensor self, Scalar other) -> Tensor
    """
    dtype = self.dtype if self.is_floating_point() else torch.get_default_dtype()
    return torch.special.zeta(self, torch.scalar_tensor(other, dtype=dtype))
