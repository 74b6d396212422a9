"""The logit function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::logit", overrides="torch's mapping uses the upper bound if the bounds cross")
def logit(self: Tensor, eps: float | None = None) -> Any:
    """log(x / (1 - x)), where x is first raised to ``eps`` or else lowered to 1 - ``eps``.

    logit(Tensor self, float? eps=None) -> Tensor
    """
    if eps is None or eps <= 0.5:
        return NotImplemented
    bounded = torch.where(self < eps, eps, 1 - eps)
    return torch.logit(torch.where(self.isnan(), self, bounded))
