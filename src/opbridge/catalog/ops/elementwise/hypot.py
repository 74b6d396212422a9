"""The length of (x, y) without intermediate overflow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::hypot")
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """sqrt(self² + other²), also accurate if the squares overflow or underflow.

    hypot(Tensor self, Tensor other) -> Tensor

    The larger magnitude is factored out (IEEE 754-2019, 9.2: infinity takes precedence over NaN).
    """
    dtype = torch.result_type(self, other)
    first, second = self.to(dtype).abs(), other.to(dtype).abs()
    is_first_longer = first >= second
    longer = torch.where(is_first_longer, first, second)
    shorter = torch.where(is_first_longer, second, first)
    ratio = shorter / torch.where(longer == 0, 1, longer)
    length = longer * torch.sqrt(1 + ratio * ratio)
    return torch.where((first == math.inf) | (second == math.inf), math.inf, length)
