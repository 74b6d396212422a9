"""Indexing with tensors of int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::index.Tensor", overrides="torch's mapping passes int32 to GatherND, which takes int64 only")
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """The elements at the places that ``indices`` name, one tensor per axis; None stands for a whole axis.

    index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
    """
    if not any(part is not None and part.dtype is torch.int32 for part in indices):
        return NotImplemented
    wide = [part.to(torch.int64) if part is not None and part.dtype is torch.int32 else part for part in indices]
    return torch.ops.aten.index.Tensor(self, wide)
