"""Logarithms of the sum of two exponentials."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for, working_type

_WHY = "torch's mapping adds the exponentials, which overflow above 88"


@decomposition("aten::logaddexp", overrides=_WHY)
@only_for(*FLOATING)
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) = m + log(1 + exp(-|a - b|)), where m is the larger number.

    logaddexp(Tensor self, Tensor other) -> Tensor
    """
    largest, distance = _apart(self, other)
    return (largest + _log1p(torch.exp(distance))).to(torch.result_type(self, other))


@decomposition("aten::logaddexp2", overrides=_WHY)
@only_for(*FLOATING)
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """log2(2**a + 2**b) = m + log2(1 + 2**-|a - b|), where m is the larger number.

    logaddexp2(Tensor self, Tensor other) -> Tensor
    """
    largest, distance = _apart(self, other)
    # The error of the product is not larger than the rounding of ``distance``; ONNX's Pow is many times slower.
    exponential = torch.exp(distance * math.log(2))
    return (largest + _log1p(exponential) * (1 / math.log(2))).to(torch.result_type(self, other))


def _apart(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The larger number and the absolute difference, which is 0 also for two infinities.

    If one number is NaN, the first result is NaN, and the second is unspecified.
    """
    working = working_type(torch.result_type(self, other))
    a, b = self.to(working), other.to(working)
    limit = torch.finfo(working).max
    return torch.maximum(a, b), -(a.clamp(-limit, limit) - b.clamp(-limit, limit)).abs()


def _log1p(x: Tensor) -> Tensor:
    """log(1 + x) for x in [0, 1]; the rounding error of the sum is added afterwards, because the slope is 1 near 0."""
    raised = 1 + x
    return torch.log(raised) + (x - (raised - 1))
