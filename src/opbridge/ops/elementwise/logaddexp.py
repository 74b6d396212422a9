"""Logarithms of the sum of two exponentials."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.numerics.by_type import FLOATING, only_for, working_type
from opbridge.spec import decomposition

_WHY = "torch's mapping adds the exponentials themselves, which overflow above 88"


@decomposition("aten::logaddexp", overrides=_WHY)
@only_for(*FLOATING)
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) = m + log(1 + exp(-|a - b|)), where m is the larger of both.

    logaddexp(Tensor self, Tensor other) -> Tensor
    """
    largest, distance = _apart(self, other)
    return (largest + torch.log1p(torch.exp(distance))).to(torch.result_type(self, other))


@decomposition("aten::logaddexp2", overrides=_WHY)
@only_for(*FLOATING)
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """log2(2**a + 2**b) = m + log2(1 + 2**-|a - b|), where m is the larger of both.

    logaddexp2(Tensor self, Tensor other) -> Tensor
    """
    largest, distance = _apart(self, other)
    return (largest + torch.log1p(torch.exp2(distance)) * (1 / math.log(2))).to(torch.result_type(self, other))


def _apart(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The larger of both, and how far the other one is below it: 0 also for two infinities."""
    dtype = torch.result_type(self, other)
    working = working_type(dtype)
    a, b = self.to(working), other.to(working)
    return torch.maximum(a, b), torch.where(a == b, 0, -(a - b).abs())
