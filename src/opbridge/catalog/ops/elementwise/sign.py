"""Signs, where NaN has none."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for


@decomposition("aten::sign", overrides="PyTorch's sign of NaN is 0, that of engines is NaN")
@decomposition("aten::sgn", overrides="PyTorch's sign of NaN is 0, that of engines is NaN")
@only_for(*FLOATING)
def sign(self: Tensor) -> Tensor:
    """1 of a positive number, -1 of a negative one, 0 of others.

    sign(Tensor self) -> Tensor
    sgn(Tensor self) -> Tensor
    """
    # Bytes are the fastest to subtract, but slow to convert to 16 bits.
    narrow = torch.int8 if self.dtype.itemsize >= 4 else self.dtype
    return ((self > 0).to(narrow) - (self < 0).to(narrow)).to(self.dtype)
