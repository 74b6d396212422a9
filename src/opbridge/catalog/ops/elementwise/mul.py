"""Products of boolean tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::mul.Tensor", overrides="torch's mapping takes no dynamic number for a boolean tensor")
def mul_tensor(self: Any, other: Any) -> Tensor:
    """A dynamic number where a boolean tensor is true, and 0 elsewhere.

    mul.Tensor(Tensor self, Tensor other) -> Tensor
    """
    is_number = isinstance(other, (torch.SymInt, torch.SymFloat))
    if not is_number or not isinstance(self, Tensor) or self.dtype != torch.bool:
        return NotImplemented
    return self.to(torch.result_type(self, other)) * other
