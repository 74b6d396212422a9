"""The combinations of a vector's elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.combinations")
def combinations(original: Callable[..., Tensor], input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """All combinations of ``r`` elements of a vector of dynamic size.

    combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor

    torch selects the elements from ``r`` tensors of ``r`` axes, with a size that its shape function cannot derive.
    """
    size = input.shape[0]
    if isinstance(size, int) or r < 2:
        return NotImplemented
    places = torch.arange(size)
    axes = [places.reshape([-1 if axis == other else 1 for other in range(r)]) for axis in range(r)]
    is_ascending = torch.ones([size] * r, dtype=torch.bool)
    for before, after in itertools.pairwise(axes):
        is_ascending = is_ascending & (before <= after if with_replacement else before < after)
    return input[torch.nonzero(is_ascending)]
