"""A ramp with a slope for negative elements."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for


@decomposition("aten::leaky_relu", overrides="ONNX writes the slope in float32, and engines lack it in float64")
@only_for(torch.float64)
def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """The number where it is positive, times ``negative_slope`` elsewhere; for float64.

    leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor
    """
    return torch.where(self > 0, self, self * negative_slope)
