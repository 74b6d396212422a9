"""The remainder of a floating-point division."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import working_type
from opbridge.catalog.ops.elementwise.floor_divide import is_power_of_two


@decomposition("aten::remainder", overrides="torch's mapping computes it from a rounded quotient: 1 % 0.1 would be 0")
def remainder(self: Any, other: Any) -> Tensor:
    """The remainder of ``self`` divided by ``other``, with the sign of ``other``.

    remainder.Tensor(Tensor self, Tensor other) -> Tensor
    remainder.Scalar(Tensor self, Scalar other) -> Tensor
    remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor

    The result is computed from ``fmod``, which is exact, as in PyTorch (aten/native/cpu/BinaryOpsKernel.cpp). Engines
    call a slow C function for it, so powers of 2 are handled by products, which are also exact.
    """
    dtype = torch.result_type(self, other)
    if not dtype.is_floating_point:
        return _low_bits(self, other, dtype)
    if is_power_of_two(other):
        return _by_power_of_two(self.to(working_type(dtype)), other).to(dtype)
    a, b = (x.to(dtype) if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=dtype) for x in (self, other))
    rest = torch.fmod(a, b)
    if isinstance(other, int | float):
        is_other_side = rest < 0 if other > 0 else rest > 0
    else:
        is_other_side = (rest != 0) & ((rest < 0) != (b < 0))
    return torch.where(is_other_side, rest + b, rest)


def _low_bits(a: Any, power: Any, dtype: torch.dtype) -> Tensor:
    """The remainder of integers for a ``power`` of 2; other divisors are left to ONNX's Mod."""
    if dtype == torch.bool or not is_power_of_two(power) or power > torch.iinfo(dtype).max:
        return NotImplemented
    return torch.bitwise_and(a, power - 1)


def _by_power_of_two(a: Tensor, power: float) -> Tensor:
    # After rounding down, a number is large enough to be divided exactly.
    multiples = torch.floor(a)
    if power != 1:
        multiples = torch.floor(multiples / power) * power
    rest = a - multiples
    # A zero with the sign of ``a``; NaN for infinity and NaN.
    return torch.where(rest > 0, rest, a * 0)
