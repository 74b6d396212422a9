"""Mantissa and exponent, exactly: by the logarithm, or as a custom node with a kernel that reads the bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Frexp", "frexp.h")

_LIFT = {torch.float16: 14, torch.float32: 64, torch.float64: 128, torch.bfloat16: 64}
"""The power of two by which a small number is multiplied to make it normal."""


@decomposition("aten::frexp.Tensor")
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """The mantissa m, 0.5 <= |m| < 1, and the exponent e of x = m 2**e; 0, infinity and NaN are returned with e = 0.

    frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)

    The exponent is estimated by the logarithm, which may be off by one next to a power of two. The element is divided
    in two steps, because a power of two may overflow where the quotient does not.
    """
    size = self.abs()
    is_plain = (size > 0) & ~size.isinf() & ~size.isnan()
    power = _LIFT[self.dtype]
    lift = 2.0**power
    is_small = size < 1 / lift
    lifted = torch.where(is_plain, torch.where(is_small, size * lift, size), 0.5)
    guess = torch.floor(torch.log2(lifted.to(torch.float32 if self.dtype.itemsize < 4 else self.dtype))) + 1
    half = torch.floor(guess / 2)
    mantissa = lifted * torch.exp2(-half).to(self.dtype) * torch.exp2(half - guess).to(self.dtype)
    is_low, is_high = mantissa < 0.5, mantissa >= 1
    mantissa = torch.where(is_low, mantissa * 2, torch.where(is_high, mantissa / 2, mantissa))
    exponent = guess.to(torch.int32) - is_low.to(torch.int32) + is_high.to(torch.int32)
    exponent = exponent - is_small.to(torch.int32) * power
    mantissa = torch.where(self < 0, -mantissa, mantissa)
    return torch.where(is_plain, mantissa, self), torch.where(is_plain, exponent, 0)


@kernel_translation("aten::frexp.Tensor")
def frexp_with_kernel(self: Any) -> Any:
    """``frexp`` as a custom node with a kernel.

    frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)
    """
    return custom_node("opbridge::Frexp", self, num_outputs=2)


@body_for("opbridge::Frexp")
def body(x: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    return torch.frexp(x)
