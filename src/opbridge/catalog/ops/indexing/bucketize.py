"""``bucketize``, by binary search."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::bucketize", overrides="torch's decomposition makes the number of boundaries constant")
def bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The index of the bucket that contains each value.

    bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor
    """
    return torch.searchsorted(boundaries, self, out_int32=out_int32, right=right)
