"""Writing of elements by their positions in the flattened tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::put")
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """``self`` with the elements of ``source`` at the (possibly negative) positions ``index`` of the flattened tensor.

    put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor
    """
    flat = self.reshape(-1)
    written = torch.index_put(flat, (index.reshape(-1),), source.reshape(-1), accumulate)
    return written.reshape(self.shape)
