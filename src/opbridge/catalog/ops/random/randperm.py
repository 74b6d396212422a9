"""Random permutations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::randperm")
def randperm(n: int, *, dtype: torch.dtype | None = torch.int64, device: Any = None, **options: Any) -> Tensor:
    """The integers from 0 to ``n - 1`` in random order: that of as many random numbers.

    randperm(SymInt n, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, ...) -> Tensor
    randperm.generator(SymInt n, *, Generator? generator, ScalarType? dtype=long, ...) -> Tensor
    """
    return torch.rand(n, device=device).argsort().to(dtype or torch.int64)
