"""Writing a number into the diagonal of a matrix of dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.Tensor.fill_diagonal_")
def fill_diagonal_(original: Callable[..., Tensor], self: Tensor, fill_value: Any, wrap: bool = False) -> Any:
    """The tensor with ``fill_value`` where all its indices are equal.

    fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)

    With ``wrap``, the diagonal of a matrix starts again below its end, after a row without it. torch would make the
    sizes constant.
    """
    if not any(isinstance(size, torch.SymInt) for size in self.shape):
        return NotImplemented
    first, *others = (
        torch.arange(size, device=self.device).reshape(-1, *[1] * (self.dim() - 1 - dim))
        for dim, size in enumerate(self.shape)
    )
    if wrap and self.dim() == 2:
        first = first % (self.shape[1] + 1)
    mask = torch.ones((), dtype=torch.bool, device=self.device)
    for index in others:
        mask = mask & (first == index)
    return self.masked_fill_(mask, fill_value)
