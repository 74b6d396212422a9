"""What a division of floating-point numbers leaves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import working_type
from opbridge.catalog.ops.elementwise.floor_divide import is_power_of_two


@decomposition("aten::remainder", overrides="torch's mapping takes it from a rounded quotient: 1 % 0.1 would be 0")
def remainder(self: Any, other: Any) -> Tensor:
    """What is left of ``self`` after whole multiples of ``other``, with the sign of ``other``.

    remainder.Tensor(Tensor self, Tensor other) -> Tensor
    remainder.Scalar(Tensor self, Scalar other) -> Tensor
    remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor

    From ``fmod``, which is exact, as in PyTorch (aten/native/cpu/BinaryOpsKernel.cpp); but that is a call of a C
    function for each number, which takes longer than all else, so a power of 2 is left to products, exact here too.
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
    """Of integers, where ``power`` is a power of 2; all others are left to ONNX's Mod."""
    if dtype == torch.bool or not is_power_of_two(power) or power > torch.iinfo(dtype).max:
        return NotImplemented
    return torch.bitwise_and(a, power - 1)


def _by_power_of_two(a: Tensor, power: float) -> Tensor:
    # Rounded down first, a number is not too small to be divided exactly.
    multiples = torch.floor(a)
    if power != 1:
        multiples = torch.floor(multiples / power) * power
    rest = a - multiples
    # Nothing has the sign of ``a``; of infinity and NaN, this is NaN.
    return torch.where(rest > 0, rest, a * 0)
