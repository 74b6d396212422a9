"""Leaky ReLU in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for


@decomposition("aten::leaky_relu", overrides="ONNX stores the slope in float32, and engines lack LeakyRelu in float64")
@only_for(torch.float64)
def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Each element, multiplied by ``negative_slope`` unless it is positive; for float64.

    leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
    """
    return torch.where(self > 0, self, self * negative_slope)
