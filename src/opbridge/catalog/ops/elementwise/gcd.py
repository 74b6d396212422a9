"""The greatest common divisor, by Euclid's algorithm as an ONNX Loop."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64, script
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@script()
def _euclid(a: INT64[...], b: INT64[...]) -> INT64[...]:  # type: ignore[valid-type]
    """Replace every pair (a, b) by (b, a mod b) until all b are 0: at most 92 iterations for 64 bits (Lamé)."""
    zero = op.Constant(value_int=0)
    one = op.Constant(value_int=1)
    unfinished = op.Constant(value_int=1)
    goes_on = op.Cast(unfinished, to=9)
    while goes_on:
        is_done = op.Equal(b, zero)
        rest = op.Mod(a, op.Where(is_done, one, b))
        a = op.Where(is_done, a, b)
        b = op.Where(is_done, zero, rest)
        left = op.ReduceSum(op.Abs(op.Sign(b)), keepdims=0)
        goes_on = op.Greater(left, zero)
    return a


@translation("aten::gcd")
def gcd(self: Any, other: Any) -> Any:
    """The largest number that divides both elements; 0 for 0 and 0.

    gcd(Tensor self, Tensor other) -> Tensor
    """
    first, second = (op.Abs(op.Cast(value, to=INT64.dtype)) for value in (self, other))
    shape = op.Shape(op.Add(first, second))
    return op.CastLike(_euclid(op.Expand(first, shape), op.Expand(second, shape)), self)
