"""The least common multiple, by the greatest common divisor, or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Lcm", "gcd.h")


@decomposition("aten::lcm")
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """The smallest nonnegative number that both elements divide; 0 if one of them is 0.

    lcm(Tensor self, Tensor other) -> Tensor
    """
    divisor = torch.gcd(self, other)
    share = torch.div(self, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return (share * other).abs()


@kernel_translation("aten::lcm")
def lcm_with_kernel(self: Any, other: Any) -> Any:
    """``lcm`` as a custom node with a kernel.

    lcm(Tensor self, Tensor other) -> Tensor
    """
    return custom_node("opbridge::Lcm", self, other)


@body_for("opbridge::Lcm")
def body(a: Tensor, b: Tensor) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return torch.lcm(a, b)
