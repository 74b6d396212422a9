"""``roll`` of data-dependent sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.torch_graph.internals import symbols_of


@rewrite("torch.Tensor.roll")
@rewrite("torch.roll")
def roll(
    original: Callable[..., Tensor], input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] = ()
) -> Any:
    """The elements selected by their numbers; torch's operator asks whether there are any.

    roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor
    """
    if not symbols_of([input]):
        return NotImplemented
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        return roll(original, input.flatten(), shifts, 0).reshape(input.shape)
    result = input
    for shift, axis in zip([shifts] if isinstance(shifts, int) else shifts, axes, strict=True):
        size = result.shape[axis]
        places = torch.remainder(torch.arange(size) - shift, torch.sym_max(size, 1))
        result = result.index_select(axis, places)
    return result
