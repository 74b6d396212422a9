"""Functions in float64 whose constants torch.onnx stores in float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping stores its constant in float32"


@decomposition("aten::sinc", overrides=_WHY)
@only_for(torch.float64)
def sinc(self: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0, for float64.

    sinc(Tensor self) -> Tensor
    """
    angle = self * math.pi
    return torch.where(angle == 0, 1, torch.sin(angle) / torch.where(angle == 0, 1, angle))


@decomposition("aten::log2", overrides=_WHY)
@only_for(torch.float64)
def log2(self: Tensor) -> Tensor:
    """The logarithm to base 2, for float64.

    log2(Tensor self) -> Tensor
    """
    return torch.log(self) / math.log(2)


@decomposition("aten::log10", overrides=_WHY)
@only_for(torch.float64)
def log10(self: Tensor) -> Tensor:
    """The logarithm to base 10, for float64.

    log10(Tensor self) -> Tensor
    """
    return torch.log(self) / math.log(10)
