"""``narrow`` with a start given as a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.narrow")
def narrow(original: Callable[..., Tensor], input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """``length`` elements along ``dim`` from ``start`` on, selected by indices if ``start`` is a tensor.

    narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)
    """
    if not isinstance(start, Tensor):
        return original(input, dim, start, length)
    first = torch.where(start < 0, start + input.shape[dim], start).to(torch.int64)
    return input.index_select(dim, first + torch.arange(length))
