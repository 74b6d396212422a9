"""The sign bit, including that of -0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::signbit", overrides="torch's mapping is x < 0, which is false for -0")
def signbit(self: Tensor) -> Tensor:
    """Whether the sign bit is set, also for -0; false for NaN, whose sign no ONNX operator can read.

    signbit(Tensor self) -> Tensor
    """
    if not self.is_floating_point():
        return self < 0 if self.dtype != torch.bool else torch.zeros_like(self)
    # The inverse of -0 is -inf, and that of -inf is -0.
    return (self < 0) | (1 / self < 0)
