"""Slices with tensors as bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.Tensor.__getitem__")
def getitem(original: Callable[..., Tensor], self: Tensor, index: Any) -> Any:
    """A part of a tensor; a bound that is a tensor of one integer becomes a number that is known at run time.

    Python would ask the tensor for its ``__index__``, which must be a constant.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, slice) and any(isinstance(bound, Tensor) for bound in _bounds(part)) for part in parts):
        return NotImplemented
    return original(self, tuple(_with_numbers(part) for part in parts))


def _bounds(part: slice) -> tuple[Any, Any, Any]:
    return part.start, part.stop, part.step


def _with_numbers(part: Any) -> Any:
    if not isinstance(part, slice):
        return part
    return slice(*(bound.item() if isinstance(bound, Tensor) else bound for bound in _bounds(part)))
