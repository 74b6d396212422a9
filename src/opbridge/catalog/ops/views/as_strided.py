"""Elements at places in the memory of a tensor whose axes are not stored in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::as_strided", overrides="torch's mapping takes every tensor as contiguous")
def as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    """The elements at ``offset + sum(i * stride)`` of the memory of ``self``, for a tensor such as a transposed one.

    as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)
    """
    order = _stored_order(self)
    if order is None or order == list(range(self.dim())):
        return NotImplemented
    first = 0 if storage_offset is None else storage_offset - self.storage_offset()
    return self.permute(order).reshape(-1)[places_in_memory(size, stride, first)]


def places_in_memory(size: Sequence[Any], stride: Sequence[Any], first: Any) -> Tensor:
    """The place ``first + sum(i * stride)`` of each element, as a tensor of shape ``size``, int64."""
    places = torch.full([], first, dtype=torch.int64)
    for length, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(length) * step
    return places


def _stored_order(x: Tensor) -> list[int] | None:
    """The axes in the order of memory, the one with the largest stride first; None if the memory has gaps."""
    left, order, step = list(range(x.dim())), [], 1
    while left:
        found = [axis for axis in reversed(left) if statically_known_true(x.stride(axis) == step)]
        found = found or [axis for axis in reversed(left) if statically_known_true(x.shape[axis] == 1)]
        if not found:
            return None
        left.remove(found[0])
        order.append(found[0])
        step = step * x.shape[found[0]]
    return order[::-1]
