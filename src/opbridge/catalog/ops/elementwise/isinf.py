"""Tests for infinity in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping rounds to float32 first, where numbers beyond its range become infinite"


@decomposition("aten::isinf", overrides=_WHY)
@only_for(torch.float64)
def isinf(self: Tensor) -> Tensor:
    """Whether each element is infinite.

    isinf(Tensor self) -> Tensor
    """
    return self.abs() == math.inf


@decomposition("aten::isposinf", overrides=_WHY)
@only_for(torch.float64)
def isposinf(self: Tensor) -> Tensor:
    """Whether each element is positive infinity.

    isposinf(Tensor self) -> Tensor
    """
    return self == math.inf


@decomposition("aten::isneginf", overrides=_WHY)
@only_for(torch.float64)
def isneginf(self: Tensor) -> Tensor:
    """Whether each element is negative infinity.

    isneginf(Tensor self) -> Tensor
    """
    return self == -math.inf
