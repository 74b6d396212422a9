"""The logarithm of the multivariate gamma function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::mvlgamma")
@in_working_precision
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """The logarithm of the p-variate gamma function (DLMF 35.3.4).

    mvlgamma(Tensor self, int p) -> Tensor
    """
    total = torch.scalar_tensor(p * (p - 1) / 4 * math.log(math.pi), dtype=self.dtype).expand(self.shape)
    for dimension in range(p):
        total = total + torch.lgamma(self - dimension / 2)
    return total
