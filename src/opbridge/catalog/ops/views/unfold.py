"""Windows whose length or step is a dynamic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.size_conditions import number_of


@rewrite("torch.Tensor.unfold")
def unfold(original: Callable[..., Tensor], self: Tensor, dimension: int, size: Any, step: Any) -> Tensor:
    """The windows of an axis, as elements of a new last axis; torch's operator makes both numbers constant.

    unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)
    """
    if not isinstance(size, torch.SymInt) and not isinstance(step, torch.SymInt):
        return NotImplemented
    axis = dimension % self.dim()
    # Sizes that are computed with it would become long expressions.
    count = number_of((self.shape[axis] - size) // step + 1)
    begins = torch.arange(count) * step
    places = begins.unsqueeze(-1) + torch.arange(size)
    windows = self.index_select(axis, places.reshape(-1))
    return windows.unflatten(axis, (count, size)).movedim(axis + 1, -1)
