"""``addcmul`` and ``addcdiv`` in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping stores the factor in float32"


@decomposition("aten::addcmul", overrides=_WHY)
@only_for(torch.float64)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """Compute self + value * tensor1 * tensor2, for float64.

    addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor
    """
    return self + tensor1 * value * tensor2


@decomposition("aten::addcdiv", overrides=_WHY)
@only_for(torch.float64)
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """Compute self + value * tensor1 / tensor2, for float64.

    addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor
    """
    return self + tensor1 * value / tensor2
