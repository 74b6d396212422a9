"""Selection of elements along a dimension, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.take_along_dim")
@rewrite("torch.Tensor.take_along_dim")
def take_along_dim(
    original: Callable[..., Any], input: Tensor, indices: Tensor, dim: int | None = None, **further: Any
) -> Any:
    """The elements of ``input`` at ``indices`` (which may be negative) along ``dim``; other dimensions broadcast.

    take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor

    torch broadcasts the sizes as integers, which makes dynamic dimensions constant. Fixed sizes are left to torch.
    """
    is_fixed = have_fixed_sizes(input, indices)
    if is_fixed or dim is None or further or input.dim() != indices.dim() or indices.dtype != torch.int64:
        return NotImplemented
    axis = dim % input.dim()
    shapes = ([1 if i == axis else size for i, size in enumerate(tensor.shape)] for tensor in (input, indices))
    shape = list(torch.broadcast_shapes(*shapes))
    whole, places = (
        tensor.expand([*shape[:axis], tensor.shape[axis], *shape[axis + 1 :]]) for tensor in (input, indices)
    )
    return whole.gather(axis, torch.where(places < 0, places + input.shape[axis], places))
