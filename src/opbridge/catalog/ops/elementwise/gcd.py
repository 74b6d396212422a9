"""The greatest common divisor, by Euclid's algorithm as an ONNX Loop, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import INT64, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, kernel_translation, translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Gcd", "gcd.h")


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


@kernel_translation("aten::gcd")
def gcd_with_kernel(self: Any, other: Any) -> Any:
    """``gcd`` as a custom node with a kernel.

    gcd(Tensor self, Tensor other) -> Tensor
    """
    if self.dtype != other.dtype:
        return gcd(self, other)
    return custom_node("opbridge::Gcd", self, other)


@body_for("opbridge::Gcd")
def body(a: Tensor, b: Tensor) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.gcd(a, b)
