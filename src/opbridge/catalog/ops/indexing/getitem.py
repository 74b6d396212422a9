"""Indices that Python would ask for their value: tensors as bounds of slices, and masks of rank 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.Tensor.__getitem__")
def getitem(original: Callable[..., Tensor], self: Tensor, index: Any) -> Any:
    """A part of a tensor; a bound that is a tensor of one integer becomes a number that is known at run time.

    Python would ask the tensor for its ``__index__``, which must be a constant. With a mask of rank 0 the result has
    one dimension more, of size 0 or 1.
    """
    if _is_scalar_mask(index):
        return self.unsqueeze(0)[index.reshape(1)]
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, slice) and any(isinstance(bound, Tensor) for bound in _bounds(part)) for part in parts):
        return NotImplemented
    return original(self, tuple(_with_numbers(part) for part in parts))


@rewrite("torch.Tensor.__setitem__")
def setitem(original: Callable[..., None], self: Tensor, index: Any, value: Any) -> Any:
    """Assign a part of a tensor: with a mask of rank 0 all of it or nothing."""
    if not _is_scalar_mask(index):
        return NotImplemented
    self.unsqueeze(0)[index.reshape(1)] = value
    return None


def _is_scalar_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool and index.dim() == 0


def _bounds(part: slice) -> tuple[Any, Any, Any]:
    return part.start, part.stop, part.step


def _with_numbers(part: Any) -> Any:
    if not isinstance(part, slice):
        return part
    return slice(*(bound.item() if isinstance(bound, Tensor) else bound for bound in _bounds(part)))
