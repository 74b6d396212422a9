"""The logarithm of the logistic function, also accurate in its tail."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision

_WHY = "torch's mapping computes the logarithm of a rounded sigmoid"


@in_working_precision
def _logarithm(self: Tensor) -> Tensor:
    """min(x, 0) - log(1 + t) with t = exp(-|x|); (t - (u - 1)) / u corrects the rounding of u = 1 + t."""
    term = torch.exp(-self.abs())
    raised = 1 + term
    return torch.minimum(self, self.new_zeros(())) - (torch.log(raised) + (term - (raised - 1)) / raised)


@decomposition("aten::log_sigmoid_forward", overrides=_WHY)
def log_sigmoid(self: Tensor) -> tuple[Tensor, Tensor]:
    """-log(1 + exp(-x)), and an empty buffer, which only the gradient reads.

    log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)
    """
    return _logarithm(self), self.new_zeros(0)


@decomposition("aten::log_sigmoid", overrides=_WHY)
def log_sigmoid_alone(self: Tensor) -> Tensor:
    """-log(1 + exp(-x)).

    log_sigmoid(Tensor self) -> Tensor
    """
    return _logarithm(self)
