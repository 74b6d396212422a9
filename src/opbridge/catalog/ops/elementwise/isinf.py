"""Which elements are infinite, in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping rounds to float32 first, and calls what is beyond its range infinite"


@decomposition("aten::isinf", overrides=_WHY)
@only_for(torch.float64)
def isinf(self: Tensor) -> Tensor:
    """Where an element is infinite, of either sign.

    isinf(Tensor self) -> Tensor
    """
    return self.abs() == math.inf


@decomposition("aten::isposinf", overrides=_WHY)
@only_for(torch.float64)
def isposinf(self: Tensor) -> Tensor:
    """Where an element is infinity.

    isposinf(Tensor self) -> Tensor
    """
    return self == math.inf


@decomposition("aten::isneginf", overrides=_WHY)
@only_for(torch.float64)
def isneginf(self: Tensor) -> Tensor:
    """Where an element is minus infinity.

    isneginf(Tensor self) -> Tensor
    """
    return self == -math.inf
