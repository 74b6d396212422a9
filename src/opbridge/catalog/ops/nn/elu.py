"""Exponential linear units that are accurate near 0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision

_WHY = "ONNX Runtime's Elu and Selu compute exp(x) - 1, which loses all digits of inputs below 1e-7"


@decomposition("aten::elu", overrides=_WHY)
@in_working_precision
def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """``scale`` times x for x > 0, and ``scale`` times alpha (exp(input_scale x) - 1) otherwise.

    elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor
    """
    if keeps_nan():
        return torch.where(self > 0, self * scale, torch.expm1(self * input_scale) * (alpha * scale))
    # One of the two parts is 0, with the sign of x if x is 0; a sum is much faster than a selection.
    negative = -torch.relu(-self)
    return torch.relu(self) * scale + torch.expm1(negative * input_scale) * (alpha * scale)


@decomposition("aten::selu", overrides=_WHY)
def selu(self: Tensor) -> Tensor:
    """ELU with the two constants of self-normalizing networks (Klambauer et al., 2017).

    selu(Tensor self) -> Tensor
    """
    return elu(self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@decomposition("aten::celu", overrides=_WHY)
def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """The exponential linear unit: x for x > 0, and alpha (exp(x / alpha) - 1) otherwise.

    celu(Tensor self, Scalar alpha=1.0) -> Tensor
    """
    return elu(self, alpha, 1.0, 1.0 / alpha)
