"""Randomized leaky ReLU."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::rrelu_with_noise_functional")
def rrelu_with_noise_functional(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> tuple[Tensor, Tensor]:
    """Elements of 0 or less times a slope drawn from [lower, upper], or their mean in evaluation; and the slopes.

    rrelu_with_noise_functional(Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.3333333333333333,
    bool training=False, Generator? generator=None) -> (Tensor, Tensor noise_out)
    """
    if not training:
        return torch.where(self <= 0, self * ((lower + upper) / 2), self), noise
    drawn = torch.rand(self.shape, dtype=torch.float32).to(self.dtype) * (upper - lower) + lower
    slopes = torch.where(self <= 0, drawn, 1.0).to(self.dtype)
    return self * slopes, slopes
