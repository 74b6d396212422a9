"""Elements at places in the memory of a tensor."""

from __future__ import annotations

import math
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
    order = _stored_order(self.shape, self.stride())
    if order is None:
        return NotImplemented
    first = 0 if storage_offset is None else storage_offset - self.storage_offset()
    dense, count = _stored_order(size, stride), math.prod(size)
    is_inside = statically_known_true(first >= 0) and statically_known_true(first + count <= math.prod(self.shape))
    if dense is not None and is_inside:
        stored = self.permute(order).reshape(-1).narrow(0, first, count).reshape([size[axis] for axis in dense])
        return stored.permute([dense.index(axis) for axis in range(len(size))])
    if order == list(range(self.dim())):
        return NotImplemented
    return self.permute(order).reshape(-1)[places_in_memory(size, stride, first)]


def places_in_memory(size: Sequence[Any], stride: Sequence[Any], first: Any) -> Tensor:
    """The place ``first + sum(i * stride)`` of each element, as a tensor of shape ``size``, int64."""
    places = torch.full([], first, dtype=torch.int64)
    for length, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(length) * step
    return places


def _stored_order(size: Sequence[Any], stride: Sequence[Any]) -> list[int] | None:
    """The axes in the order of memory, the one with the largest stride first; None if memory has gaps or is shared."""
    left, order, step = list(range(len(size))), [], 1
    while left:
        found = [axis for axis in reversed(left) if statically_known_true(stride[axis] == step)]
        found = found or [axis for axis in reversed(left) if statically_known_true(size[axis] == 1)]
        if not found:
            return None
        left.remove(found[0])
        order.append(found[0])
        step = step * size[found[0]]
    return order[::-1]
