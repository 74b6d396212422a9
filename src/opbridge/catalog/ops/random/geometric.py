"""Samples of the geometric distribution for integers, drawn in floating point."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for


@decomposition("aten::geometric", overrides="torch's mapping draws random integers, which engines do not support")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
def geometric(self: Tensor, p: float, *, generator: None = None) -> Tensor:
    """The number of trials up to the first success with probability ``p``; for integers.

    geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor
    """
    return torch.ops.aten.geometric(self.float(), p).to(self.dtype)
