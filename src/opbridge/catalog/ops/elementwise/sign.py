"""Signs; the sign of NaN is 0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for


@decomposition("aten::sign", overrides="the sign of NaN is 0 in PyTorch and NaN in engines")
@decomposition("aten::sgn", overrides="the sign of NaN is 0 in PyTorch and NaN in engines")
@only_for(*FLOATING)
def sign(self: Tensor) -> Tensor:
    """1 for positive numbers, -1 for negative numbers, 0 otherwise.

    sign(Tensor self) -> Tensor
    sgn(Tensor self) -> Tensor
    """
    # Bytes are the fastest to subtract, but are slow to convert to 16-bit floats.
    narrow = torch.int8 if self.dtype.itemsize >= 4 else self.dtype
    return ((self > 0).to(narrow) - (self < 0).to(narrow)).to(self.dtype)
