"""Cross entropy with class probabilities and class weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.nn.functional.cross_entropy")
def cross_entropy(
    original: Callable[..., Tensor],
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """-Σ weight * target * log softmax(input) over the classes of (C) or (N, C, ..), if a size is dynamic.

    torch's function makes the number of classes constant when it checks the number of weights. Targets that are class
    indices are left to torch.
    """
    is_fixed = have_fixed_sizes(input)
    is_old = size_average is not None or reduce is not None
    if is_fixed or is_old or weight is None or not target.is_floating_point():
        return NotImplemented
    axis = min(input.dim() - 1, 1)
    classes = input.shape[axis]
    shares = target * (1 - label_smoothing) + label_smoothing / classes if label_smoothing else target
    scale = weight.reshape([-1 if other == axis else 1 for other in range(input.dim())])
    loss = -(torch.log_softmax(input, axis) * shares * scale).sum(axis)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
