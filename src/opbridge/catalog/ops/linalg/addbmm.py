"""``addbmm`` and ``baddbmm``."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.ops.linalg.addmv import scaled_sum

_WHY = "torch's mapping stores alpha and beta in float32, and propagates NaN of self if beta is 0"


@decomposition("aten::addbmm", overrides=_WHY)
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum of beta * self and alpha times all products of a batch.

    addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    return scaled_sum(self, torch.bmm(batch1, batch2).sum(0, dtype=batch1.dtype), beta, alpha)


@decomposition("aten::baddbmm", overrides=_WHY)
def baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum of beta * self and alpha times each product of a batch.

    baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    return scaled_sum(self, torch.bmm(batch1, batch2), beta, alpha)
