"""``as_tensor`` of dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite

_SIZES = (torch.SymInt, torch.SymFloat)


@rewrite("torch.as_tensor")
def as_tensor(original: Callable[..., Tensor], data: Any, dtype: torch.dtype | None = None, device: Any = None) -> Any:
    """A tensor of numbers some of which are dynamic sizes, which torch would make constant."""
    numbers = torch.utils._pytree.tree_leaves(data)
    if isinstance(data, Tensor) or not any(isinstance(number, _SIZES) for number in numbers):
        return NotImplemented
    if dtype is None:
        whole = all(isinstance(number, (int, torch.SymInt)) for number in numbers)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    return _stacked(data, dtype, device)


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(part, dtype, device) for part in data])
    return torch.scalar_tensor(data, dtype=dtype, device=device)
