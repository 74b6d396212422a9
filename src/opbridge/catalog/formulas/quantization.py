"""Quantization in floating point: the levels of numbers, and the scale and the zero point of a range."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["fake_quantized", "quantization_parameters"]

_SMALLEST_SCALE = 6.1e-5
"""A smaller scale is raised to this one (ATen/native/quantized/cpu/QuantUtils.h)."""


def quantization_parameters(low: Tensor, high: Tensor, first: int, last: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """The scale and the zero point with which PyTorch quantizes a range to the integers from ``first`` to ``last``.

    Source: ChooseQuantizationParams in ATen/native/quantized/cpu/QuantUtils.h.

    Args:
        low: The least number of the range.
        high: The greatest number of the range.
        first: The least integer.
        last: The greatest integer.
        symmetric: Whether 0 is in the middle of a range with numbers of both signs.

    Returns:
        The scale in float64, and the zero point as a float64 that is an integer.
    """
    low, high = low.clamp_max(0), high.clamp_min(0)
    both_signs = (low < 0) & (high > 0)
    if symmetric:
        bottom, top = -((last - first) // 2 + 1), (last - first) // 2
        widest = torch.maximum((low / bottom).abs(), (high / top).abs())
        low = torch.where(both_signs, widest * bottom, low)
        high = torch.where(both_signs, widest * top, high)
    low, high = low.to(torch.float64), high.to(torch.float64)
    scale = (high - low) / (last - first)
    scale = torch.where((scale.float() == 0) | (1 / scale.float()).isinf(), 0.1, scale)
    is_small = scale.float() < _SMALLEST_SCALE
    factor, span = _SMALLEST_SCALE / scale, _SMALLEST_SCALE * (last - first)
    new_low = torch.where(low == 0, low, torch.where(high == 0, -span, low * factor))
    new_high = torch.where(low == 0, span, high * factor)
    low, high = torch.where(is_small, new_low, low), torch.where(is_small, new_high, high)
    scale = torch.where(is_small, _SMALLEST_SCALE, scale)
    from_low, from_high = first - low / scale, last - high / scale
    is_nearer = abs(first) + (low / scale).abs() < abs(last) + (high / scale).abs()
    zero = torch.where(is_nearer, from_low, from_high)
    if symmetric:
        zero = torch.where(both_signs, (first + last) / 2, zero)
    return scale, torch.round(zero).clamp(first, last)


def fake_quantized(x: Tensor, scale: Any, zero: Any, first: int, last: int) -> tuple[Tensor, Tensor]:
    """``x`` rounded to the levels of a quantization, and which elements are in range; both have the shape of ``x``.

    Args:
        x: The numbers.
        scale: The distance of two levels.
        zero: The zero point, in the type of the scale.
        first: The least integer.
        last: The greatest integer.
    """
    level = torch.round(x * (1 / scale)) + zero
    rounded = ((level.clamp(first, last) - zero) * scale).to(x.dtype)
    return rounded, (level >= first) & (level <= last)
