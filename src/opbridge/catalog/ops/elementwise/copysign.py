"""``copysign``: the magnitude of one number with the sign of another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::copysign.Tensor")
def copysign(self: Tensor, other: Tensor) -> Tensor:
    """The magnitude of ``self`` with the sign of ``other``, including the sign of -0.

    copysign.Tensor(Tensor self, Tensor other) -> Tensor
    """
    dtype = torch.result_type(self, other)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    magnitude = self.to(dtype).abs()
    return torch.where(torch.signbit(other), -magnitude, magnitude)


@decomposition("aten::copysign.Scalar")
def copysign_scalar(self: Tensor, other: float) -> Tensor:
    """The magnitude of ``self`` with the sign of a scalar.

    copysign.Scalar(Tensor self, Scalar other) -> Tensor
    """
    dtype = self.dtype if self.is_floating_point() else torch.get_default_dtype()
    magnitude = self.to(dtype).abs()
    return -magnitude if math.copysign(1.0, other) < 0 else magnitude
