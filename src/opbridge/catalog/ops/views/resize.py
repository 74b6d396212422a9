"""Reuse of the same memory with another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::resize")
def resize(self: Tensor, size: Sequence[Any], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """The first elements of ``self`` in the shape ``size``, padded with 0.

    resize(Tensor self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor
    """
    flat, count = self.reshape(-1), math.prod(size)
    rest = torch.zeros([count], dtype=self.dtype)
    return torch.cat([flat, rest])[:count].reshape(size)
