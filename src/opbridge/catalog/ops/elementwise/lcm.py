"""The least common multiple, by the greatest common divisor."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::lcm")
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """The smallest nonnegative number that both elements divide; 0 if one of them is 0.

    lcm(Tensor self, Tensor other) -> Tensor
    """
    divisor = torch.gcd(self, other)
    share = torch.div(self, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return (share * other).abs()
