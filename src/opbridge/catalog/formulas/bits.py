"""The bits of numbers as integers, and the reverse (IEEE 754-2019, 3.4), without an operator that reads bits.

Every number is exact except that all NaNs have the bits of the positive quiet NaN without a payload.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["HAVE_BITS", "bits_of", "from_bits"]


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The fields of a floating-point type: sign, exponent + ``bias``, ``mantissa`` bits."""

    bits: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def infinity(self) -> int:
        return (2 * self.bias + 1) << self.mantissa


_FLOATS = {
    torch.float16: _Layout(16, 10),
    torch.bfloat16: _Layout(16, 7),
    torch.float32: _Layout(32, 23),
    torch.float64: _Layout(64, 52),
}
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)

HAVE_BITS: Sequence[torch.dtype] = (*_FLOATS, *_INTEGERS, torch.bool)
"""The element types with a formula."""


def bits_of(x: Tensor) -> Tensor:
    """The bits of each element as an int64; those of narrower types are between 0 and 2 ** bits - 1."""
    if x.dtype in _FLOATS:
        return _bits_of_float(x)
    value = x.to(torch.int64)
    return torch.where(value < 0, value + 2 ** (8 * x.itemsize), value) if x.itemsize < 8 else value


def from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers with these bits, which are as :func:`bits_of` returns them."""
    if dtype in _FLOATS:
        return _float_of_bits(bits, dtype)
    if dtype.is_signed and dtype.itemsize < 8:
        bits = torch.where(bits >= 2 ** (8 * dtype.itemsize - 1), bits - 2 ** (8 * dtype.itemsize), bits)
    return bits.to(dtype)


def _bits_of_float(x: Tensor) -> Tensor:
    layout = _FLOATS[x.dtype]
    size = x.abs().to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    mantissa, exponent = torch.frexp(size)
    fields = (exponent.to(torch.int64) + layout.bias - 1) << layout.mantissa
    normal = fields + ((2 * mantissa - 1) * 2.0**layout.mantissa).to(torch.int64)
    # The factor that makes subnormal numbers integers may itself be infinite.
    power = layout.bias + layout.mantissa - 1
    subnormal = (size * 2.0 ** (power // 2) * 2.0 ** (power - power // 2)).to(torch.int64)
    value = torch.where(size < 2.0 ** (1 - layout.bias), subnormal, normal)
    quiet_nan = layout.infinity | 1 << (layout.mantissa - 1)
    value = torch.where(size < math.inf, value, torch.where(size.isnan(), quiet_nan, layout.infinity))
    sign = -(2**63) if layout.bits == 64 else 2 ** (layout.bits - 1)
    return torch.where(torch.signbit(x), value + sign, value)


def _float_of_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    layout = _FLOATS[dtype]
    working = torch.float64 if dtype == torch.float64 else torch.float32
    magnitude = bits & (2 ** (layout.bits - 1) - 1)
    exponent = magnitude >> layout.mantissa
    fraction = magnitude & (2**layout.mantissa - 1)
    significand = torch.where(exponent > 0, fraction + 2**layout.mantissa, fraction)
    power = (exponent.clamp_min(1) - layout.bias - layout.mantissa).to(working)
    # The smallest power of two is less than the smallest normal number, so that the scaling takes two steps.
    half = torch.floor(power / 2)
    value = significand.to(working) * torch.exp2(half) * torch.exp2(power - half)
    value = torch.where(magnitude == layout.infinity, math.inf, value)
    value = torch.where(magnitude > layout.infinity, math.nan, value)
    is_negative = bits < 0 if layout.bits == 64 else bits > magnitude
    return torch.where(is_negative, -value, value).to(dtype)
