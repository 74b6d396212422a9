"""The fake quantization of quantization-aware training, with its moving range."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.quantization import fake_quantized, quantization_parameters


@decomposition("aten::_fused_moving_avg_obs_fq_helper_functional")
def fused_fake_quantize(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, ...]:
    """The rounded input, which elements are in range, and the range and the parameters after this call.

    _fused_moving_avg_obs_fq_helper_functional(Tensor self, Tensor observer_on, Tensor fake_quant_on,
    Tensor running_min, Tensor running_max, Tensor scale, Tensor zero_point, float averaging_const, int quant_min,
    int quant_max, int ch_axis, bool per_row_fake_quant=False, bool symmetric_quant=False) -> (Tensor output,
    Tensor mask, Tensor running_min_out, Tensor running_max_out, Tensor scale_out, Tensor zero_point_out)

    As in ATen/native/quantized/cpu/fused_obs_fake_quant.cpp: while the observer is on, the range moves; while the fake
    quantization is on, the range determines the parameters, and the elements are rounded.
    """
    axis = ch_axis % self.dim()
    axes = [other for other in range(self.dim()) if not per_row_fake_quant or other != axis]
    observes, quantizes = observer_on.reshape(()) > 0, fake_quant_on.reshape(()) > 0
    low = torch.where(observes, _moved(running_min, self.amin(axes), averaging_const), running_min)
    high = torch.where(observes, _moved(running_max, self.amax(axes), averaging_const), running_max)
    found_scale, found_zero = quantization_parameters(low, high, quant_min, quant_max, symmetric_quant)
    scale = torch.where(quantizes, found_scale.to(scale.dtype), scale)
    zero_point = torch.where(quantizes, found_zero.to(zero_point.dtype), zero_point)
    shape = [-1 if other == axis and per_row_fake_quant else 1 for other in range(self.dim())]
    step, zero = scale.reshape(shape), zero_point.reshape(shape).to(scale.dtype)
    rounded, is_in_range = fake_quantized(self, step, zero, quant_min, quant_max)
    return torch.where(quantizes, rounded, self), is_in_range | ~quantizes, low, high, scale, zero_point


def _moved(running: Tensor, current: Tensor, weight: float) -> Tensor:
    current = current.to(running.dtype).reshape(running.shape)
    return torch.where(running.isinf(), current, running + weight * (current - running))
