"""Piecewise linear activations and softplus in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping stores constants in float32"


@decomposition("aten::hardtanh", overrides=_WHY)
@only_for(torch.float64)
def hardtanh(self: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    """Each element clamped to the two bounds, for float64.

    hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor
    """
    return torch.where(self < min_val, min_val, torch.where(self > max_val, max_val, self))


@decomposition("aten::hardsigmoid", overrides=_WHY)
@only_for(torch.float64)
def hardsigmoid(self: Tensor) -> Tensor:
    """(x + 3) / 6 clamped to [0, 1], for float64.

    hardsigmoid(Tensor self) -> Tensor
    """
    return hardtanh((self + 3) / 6, 0.0, 1.0)


@decomposition("aten::hardswish", overrides=_WHY)
@only_for(torch.float64)
def hardswish(self: Tensor) -> Tensor:
    """Each element times its hardsigmoid, for float64.

    hardswish(Tensor self) -> Tensor
    """
    return self * hardtanh((self + 3) / 6, 0.0, 1.0)


@decomposition("aten::softplus", overrides=_WHY)
@only_for(torch.float64)
def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta, or x if beta x is above ``threshold``; for float64.

    softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor

    The exponent is never positive, because log(1 + exp(y)) = max(y, 0) + log1p(exp(-|y|)).
    """
    scaled = self * beta
    smooth = (torch.relu(scaled) + torch.log1p(torch.exp(-scaled.abs()))) / beta
    return torch.where(scaled > threshold, self, smooth)
