"""Cosine similarity with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.cosine_similarity")
def cosine_similarity(original: Callable[..., Tensor], x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    """The sum of x1 / |x1| * x2 / |x2| along ``dim``, with norms of at least ``eps``.

    cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor

    This rewrite applies if dynamic sizes may differ, because torch then specializes sizes that are 1 in the example.
    """
    is_same = x1.dim() == x2.dim() and all(
        statically_known_true(a == b) for a, b in zip(x1.shape, x2.shape, strict=True)
    )
    if is_same or have_fixed_sizes(x1, x2):
        return NotImplemented
    x1, x2 = torch.broadcast_tensors(x1, x2)
    first, second = (x / (x * x).sum(dim, keepdim=True).sqrt().clamp_min(eps) for x in (x1, x2))
    return (first * second).sum(dim)
