"""What a division of floating-point numbers leaves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.spec import decomposition


@decomposition("aten::remainder", overrides="torch's mapping takes it from a rounded quotient: 1 % 0.1 would be 0")
def remainder(self: Any, other: Any) -> Tensor:
    """What is left of ``self`` after whole multiples of ``other``, with the sign of ``other``.

    remainder.Tensor(Tensor self, Tensor other) -> Tensor
    remainder.Scalar(Tensor self, Scalar other) -> Tensor
    remainder.Scalar_Tensor(Scalar self, Tensor other) -> Tensor

    From ``fmod``, which is exact, as in PyTorch (aten/native/cpu/BinaryOpsKernel.cpp).
    """
    dtype = torch.result_type(self, other)
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = (x.to(dtype) if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=dtype) for x in (self, other))
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
