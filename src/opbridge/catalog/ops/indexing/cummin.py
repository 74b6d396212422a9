"""The cumulative minimum, by the cumulative maximum in reversed order."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::cummin")
def cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The cumulative minimum along ``dim``, and the index of its latest occurrence; NaN counts as the smallest.

    cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)

    Negation reverses the order of floats. For integers it overflows at the lowest value; the bitwise complement does
    not, and also works for unsigned integers and bool.
    """
    if self.is_floating_point():
        values, indices = torch.cummax(-self, dim)
        return -values, indices
    values, indices = torch.cummax(~self, dim)
    return ~values, indices
