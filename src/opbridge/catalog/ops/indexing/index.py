"""Indexing with tensors: one index as a Gather, and several of int32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::index.Tensor",
    overrides="torch's mapping puts a GatherND between two Transposes, and passes int32 to it, which takes int64 only",
)
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """The elements at the places that ``indices`` name, one tensor per axis; None stands for a whole axis.

    index.Tensor(Tensor self, Tensor?[] indices) -> Tensor
    """
    given = [(axis, part) for axis, part in enumerate(indices) if part is not None]
    if len(given) == 1 and given[0][1].dtype in (torch.int64, torch.int32) and not self.is_complex():
        axis, places = given[0]
        if places.dim() == 1:
            return self.index_select(axis, places)
        if (
            places.dim() > 1
            and 0 < axis < self.dim() - 1
            and all(isinstance(size, int) for size in (*self.shape, *places.shape))
        ):
            taken = self.index_select(axis, places.reshape(-1))
            return taken.reshape([*self.shape[:axis], *places.shape, *self.shape[axis + 1 :]])
    if not any(part.dtype is torch.int32 for _, part in given):
        return NotImplemented
    wide = [part.to(torch.int64) if part is not None and part.dtype is torch.int32 else part for part in indices]
    return torch.ops.aten.index.Tensor(self, wide)
