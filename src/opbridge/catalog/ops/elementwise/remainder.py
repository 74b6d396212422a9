"""The remainder of a floating-point division, as ONNX nodes, or as a custom node with a kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
from onnxscript import BOOL, DOUBLE, FLOAT, script
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, translation
from opbridge.catalog.formulas.element_types import FLOATS, working_type
from opbridge.catalog.ops.elementwise.floor_divide import constant, is_power_of_two, number_of
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Remainder", "remainder.h")
kernel_for("opbridge::Fmod", "remainder.h")

_WHY = "torch's mapping computes it from a rounded quotient: 1 % 0.1 would be 0"
_MOST = 2.0**28
"""A limit of the quotients up to which float64 is exact."""


@decomposition("aten::remainder", overrides=_WHY)
def remainder(self: Any, other: Any) -> Tensor:
    """The remainder of ``self`` divided by ``other``, with the sign of ``other``.

    remainder.Tensor(Tensor self, Tensor other) -> Tensor
    remainder.Scalar(Tensor self, Scalar other) -> Tensor
    remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor

    Powers of 2 are handled by products, which are exact.
    """
    dtype = torch.result_type(self, other)
    if not dtype.is_floating_point:
        return _low_bits(self, other, dtype)
    working = working_type(dtype)
    if is_power_of_two(other):
        return _by_power_of_two(self.to(working), other).to(dtype)
    a, b = (x.to(dtype) if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=dtype) for x in (self, other))
    if working != torch.float32:
        return by_fmod(a, b)
    a, b = a.to(working), b.to(working)
    shape = torch.broadcast_shapes(a.shape, b.shape)
    sides = (x if x.dim() == 0 or x.shape == shape else x.expand(shape) for x in (a, b))
    result: Tensor = torch.ops.prims.remainder.default(*sides)
    return result.to(dtype)


def _low_bits(a: Any, power: Any, dtype: torch.dtype) -> Tensor:
    """The remainder of integers for a ``power`` of 2; other divisors are left to ONNX's Mod, a size as a tensor."""
    if isinstance(power, torch.SymInt):
        return torch.remainder(a, torch.scalar_tensor(power, dtype=dtype))
    if dtype == torch.bool or not is_power_of_two(power) or power > torch.iinfo(dtype).max:
        return NotImplemented
    return torch.bitwise_and(a, power - 1)


def _by_power_of_two(a: Tensor, power: float) -> Tensor:
    # After rounding down, a number is large enough to be divided exactly.
    multiples = torch.floor(a)
    if power != 1:
        multiples = torch.floor(multiples / power) * power
    # A zero gets the sign of ``a``; NaN for infinity and NaN. A difference is much faster than a selection.
    return a * 0 - (multiples - a)


@decomposition("prims::remainder", overrides=_WHY)
def by_fmod(a: Tensor, b: Tensor) -> Tensor:
    """The remainder of floating-point numbers from ``fmod``, which is exact, for engines without float64.

    remainder(Tensor self, Tensor other) -> Tensor

    As in PyTorch (aten/native/cpu/BinaryOpsKernel.cpp). Engines call a slow C function for ``fmod``.
    """
    if not a.dtype.is_floating_point:
        return NotImplemented
    rest = torch.fmod(a, b)
    is_other_side = (rest != 0) & ((rest < 0) != (b < 0))
    return torch.where(is_other_side, rest + b, rest)


@script()
def _chosen(is_exact: BOOL, excess: DOUBLE, a: FLOAT, b: FLOAT) -> FLOAT:
    """The remainder from its negative, ``excess``, if it is exact, otherwise from ``fmod``."""
    if is_exact:
        # A zero gets the sign of ``a``; a difference is much faster than a selection.
        result = op.Sub(op.Mul(a, 0.0), op.Cast(excess, to=FLOAT.dtype))
    else:
        slow = op.Mod(a, b, fmod=1)
        is_other_side = op.And(op.Cast(slow, to=BOOL.dtype), op.Xor(op.Less(slow, 0.0), op.Less(b, 0.0)))
        result = op.Where(is_other_side, op.Add(slow, b), slow)
    return result


@translation("prims::remainder.default", overrides=_WHY)
def prims_remainder(self: Any, other: Any) -> Any:
    """The remainder of float32 numbers.

    remainder(Tensor self, Tensor other) -> Tensor

    If all quotients are below 2**28, float64 computes the remainder exactly: the quotient is right after rounding down
    (see ``floor_divide``), its product with the divisor has at most 52 bits, and so has the difference. Otherwise, and
    for infinity and NaN, ``fmod`` is used.
    """
    if self.dtype != FLOAT.dtype:
        return op.Mod(self, other)
    number = number_of(other)
    a = op.Cast(self, to=DOUBLE.dtype)
    b = op.Cast(other, to=DOUBLE.dtype) if number is None else constant(number, DOUBLE.dtype)
    quotient = op.Floor(op.Div(a, b))
    multiples = op.Mul(quotient, b)
    size = op.ReduceL2(quotient, keepdims=0)
    if number is None or math.isinf(number):
        # The quotient of an infinite divisor is finite; its product is NaN.
        size = op.Add(size, op.Mul(op.ReduceL2(multiples, keepdims=0), constant(0.0, DOUBLE.dtype)))
    return _chosen(op.Less(size, constant(_MOST, DOUBLE.dtype)), op.Sub(multiples, a), self, other)


@kernel_translation("aten::remainder.Tensor")
def remainder_with_kernel(self: Any, other: Any) -> Any:
    """``remainder`` of floating-point tensors as a custom node with a kernel.

    remainder.Tensor(Tensor self, Tensor other) -> Tensor
    """
    if self.dtype not in FLOATS or self.dtype != other.dtype:
        return op.Mod(self, other)
    return custom_node("opbridge::Remainder", self, other)


@body_for("opbridge::Remainder")
def remainder_body(a: Tensor, b: Tensor) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.remainder(a, b)


@kernel_translation("aten::fmod.Tensor")
def fmod_with_kernel(self: Any, other: Any) -> Any:
    """``fmod`` of floating-point tensors as a custom node with a kernel.

    fmod.Tensor(Tensor self, Tensor other) -> Tensor
    """
    if self.dtype not in FLOATS or self.dtype != other.dtype:
        return op.Mod(self, other, fmod=1)
    return custom_node("opbridge::Fmod", self, other)


@body_for("opbridge::Fmod")
def fmod_body(a: Tensor, b: Tensor) -> Tensor:
    """The node of torch's mapping."""
    return torch.fmod(a, b)
