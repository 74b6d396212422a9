"""Powers of tensors with exponents of another type."""

from __future__ import annotations

from typing import Any

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


@decomposition("aten::pow.Tensor_Scalar", overrides="torch's mapping takes no boolean and no dynamic exponent")
def pow_tensor_scalar(self: Tensor, exponent: Any) -> Tensor:
    """The power of a boolean tensor to True or False, which is boolean, and of integers to a dynamic number.

    pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor
    """
    if isinstance(exponent, torch.SymInt) and not self.is_floating_point():
        return torch.pow(self, torch.scalar_tensor(exponent, dtype=torch.int64)).to(torch.result_type(self, 1))
    if self.dtype != torch.bool or type(exponent) is not bool:
        return NotImplemented
    return self.clone() if exponent else torch.ones_like(self)
