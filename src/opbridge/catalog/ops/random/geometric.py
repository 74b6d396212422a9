"""Random integers that are drawn as floating-point numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for


@decomposition("aten::geometric", overrides="torch draws them in the integer type, which engines do not draw in")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
def geometric(self: Tensor, p: float, *, generator: None = None) -> Tensor:
    """How many coins are thrown until one of probability ``p`` falls on its head; for integers.

    geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor
    """
    return torch.ops.aten.geometric(self.float(), p).to(self.dtype)
