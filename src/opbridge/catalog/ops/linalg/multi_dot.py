"""The product of several matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.linalg.multi_dot")
def multi_dot(original: Callable[..., Any], tensors: Sequence[Tensor], **further: Any) -> Any:
    """The product of matrices from left to right, or from right to left if the last one is a vector.

    linalg_multi_dot(Tensor[] tensors) -> Tensor

    torch chooses the order with the fewest multiplications, which requires fixed sizes. If all sizes are fixed, torch's
    implementation is used.
    """
    if further or have_fixed_sizes(*tensors):
        return NotImplemented
    if tensors[-1].dim() == 1:
        return functools.reduce(lambda right, left: torch.matmul(left, right), reversed(tensors))
    return functools.reduce(torch.matmul, tensors)
