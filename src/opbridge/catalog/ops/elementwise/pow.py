"""Powers of tensors of two types."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::pow.Tensor_Tensor", overrides="torch's mapping gives the power the type of the base")
def pow_tensor_tensor(self: Tensor, exponent: Tensor) -> Tensor:
    """The power, in the type of an operation with both.

    pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor
    """
    dtype = torch.result_type(self, exponent)
    return NotImplemented if self.dtype == dtype else torch.pow(self.to(dtype), exponent)
