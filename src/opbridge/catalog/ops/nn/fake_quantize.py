"""Fake quantization, and quantization to a part of the range of its type, as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, fake_for
from opbridge.catalog.formulas.quantization import fake_quantized
from opbridge.torch_graph.internals import quantized_operators

_LIMITS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
_OPS = quantized_operators()


def _type_for(quant_min: int, quant_max: int) -> torch.dtype | None:
    """The 8-bit type that has these levels; None if they need more bits."""
    return next((dtype for dtype, (low, high) in _LIMITS.items() if low <= quant_min and quant_max <= high), None)


def _clamped(x: Tensor, scale: Any, zero_point: Any, limits: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """``x`` where its levels are in range: engines saturate at the limits of the type."""
    if limits == _LIMITS[dtype]:
        return x
    low, high = ((limit - zero_point) * scale for limit in limits)
    return x.clamp(low, high) if isinstance(scale, float) else torch.minimum(torch.maximum(x, low), high)


@fake_for("aten::fake_quantize_per_tensor_affine_cachemask")
@fake_for("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
@fake_for("aten::fake_quantize_per_channel_affine_cachemask")
def fake_quantize_shape(self: Tensor, *parameters: Any) -> tuple[Tensor, Tensor]:
    """The shape function, which torch does not have."""
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


@decomposition("aten::fake_quantize_per_tensor_affine_cachemask")
def fake_quantize_per_tensor(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """``self`` rounded to the levels of a quantization, and which elements are in range.

    fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, int quant_max)
    -> (Tensor output, Tensor mask)

    Levels of more than 8 bits are computed in floating point.
    """
    limits, dtype = (quant_min, quant_max), _type_for(quant_min, quant_max)
    result, is_in_range = fake_quantized(self, scale, zero_point, *limits)
    if dtype is not None and self.dtype == torch.float32:
        arguments = (scale, zero_point, *_LIMITS[dtype], dtype)
        levels = _OPS.quantize_per_tensor(_clamped(self, scale, zero_point, limits, dtype), *arguments)
        result = _OPS.dequantize_per_tensor(levels, *arguments)
    return result, is_in_range


@decomposition("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_per_tensor_of_tensors(
    self: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The same with a scale and a zero point of shape (1), in floating point, if ``fake_quant_enabled`` is not 0.

    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point,
    Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)
    """
    step = scale.reshape(())
    result, is_in_range = fake_quantized(self, step, zero_point.reshape(()).to(step.dtype), quant_min, quant_max)
    is_on = fake_quant_enabled.reshape(()) > 0
    return torch.where(is_on, result, self), is_in_range | ~is_on


@decomposition("aten::fake_quantize_per_channel_affine_cachemask")
def fake_quantize_per_channel(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """The same with a scale and a zero point for each index along ``axis``.

    fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min,
    int quant_max) -> (Tensor output, Tensor mask)
    """
    limits, dtype = (quant_min, quant_max), _type_for(quant_min, quant_max)
    shape = [-1 if other == axis % self.dim() else 1 for other in range(self.dim())]
    step, zero = scale.reshape(shape), zero_point.reshape(shape).to(scale.dtype)
    result, is_in_range = fake_quantized(self, step, zero, *limits)
    if dtype is not None and self.dtype == torch.float32 and not zero_point.is_floating_point():
        arguments = (scale, zero_point, axis, *_LIMITS[dtype], dtype)
        levels = _OPS.quantize_per_channel(_clamped(self, step, zero, limits, dtype), *arguments)
        result = _OPS.dequantize_per_channel(levels, *arguments)
    return result, is_in_range


@decomposition(
    "quantized_decomposed::quantize_per_tensor.default",
    overrides="torch's mapping saturates at the limits of the type, whatever quant_min and quant_max are",
)
def quantize_per_tensor(
    input: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Any:
    """The levels of a quantization whose range is smaller than that of its type; others are left to torch.

    quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype)
    -> Tensor
    """
    if dtype not in _LIMITS or (quant_min, quant_max) == _LIMITS[dtype]:
        return NotImplemented
    clamped = _clamped(input, scale, zero_point, (quant_min, quant_max), dtype)
    return _OPS.quantize_per_tensor(clamped, scale, zero_point, *_LIMITS[dtype], dtype)


@decomposition("quantized_decomposed::quantize_per_tensor.tensor", overrides="torch's mapping fails")
def quantize_per_tensor_of_tensors(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """The levels of a quantization whose scale and zero point are computed.

    quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max,
    ScalarType dtype) -> Tensor
    """
    level = torch.round(input * (1 / scale)) + zero_point
    return level.clamp(quant_min, quant_max).to(dtype)
