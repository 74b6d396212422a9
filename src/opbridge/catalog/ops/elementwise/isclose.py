"""Comparison of elements with a tolerance."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::isclose",
    overrides="torch's mapping treats any number as close to infinity, and rounds the tolerance of integers",
)
def isclose(self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether elements are equal, or their absolute difference is finite and at most ``atol + abs(rtol * other)``.

    isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor
    """
    if self.is_complex():
        return NotImplemented
    close = self == other
    if equal_nan and self.is_floating_point():
        close = close | (self.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    if not self.is_floating_point():
        self, other = (value.to(torch.get_default_dtype()) for value in (self, other))
    difference = (self - other).abs()
    return close | ((difference < torch.inf) & (difference <= atol + (rtol * other).abs()))
