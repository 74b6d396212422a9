"""The modified Bessel function I0 under its second name."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::special_modified_bessel_i0")
def special_modified_bessel_i0(self: Tensor) -> Tensor:
    """I0 of each element.

    special_modified_bessel_i0(Tensor self) -> Tensor
    """
    return torch.i0(self)
