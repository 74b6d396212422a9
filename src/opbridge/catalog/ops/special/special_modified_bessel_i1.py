"""The modified Bessel function I1 under its second name."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::special_modified_bessel_i1")
def special_modified_bessel_i1(self: Tensor) -> Tensor:
    """I1 of each element.

    special_modified_bessel_i1(Tensor self) -> Tensor
    """
    return torch.special.i1(self)
