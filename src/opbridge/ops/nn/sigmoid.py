"""The logarithm of the logistic function, right in its tail too."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::log_sigmoid_forward", overrides="torch's mapping takes the logarithm of a rounded sigmoid")
def log_sigmoid(self: Tensor) -> tuple[Tensor, Tensor]:
    """-softplus(-x), and an empty buffer, for only the gradient reads it.

    log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)
    """
    return -torch.nn.functional.softplus(-self, threshold=1e9), self.new_zeros(0)


@decomposition("aten::log_sigmoid", overrides="torch's mapping takes the logarithm of a rounded sigmoid")
def log_sigmoid_alone(self: Tensor) -> Tensor:
    """-softplus(-x).

    log_sigmoid(Tensor self) -> Tensor
    """
    return log_sigmoid(self)[0]
