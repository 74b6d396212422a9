"""Cross entropy with class probabilities, class weights and smoothed labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
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


_REDUCTIONS = ("none", "mean", "sum")


@decomposition("aten::cross_entropy_loss", overrides="torch's mapping ignores the smoothing of labels")
def smoothed_cross_entropy(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """The loss of class indices, of which each class gets an equal share of ``label_smoothing``.

    cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=Mean, SymInt ignore_index=-100,
    float label_smoothing=0.0) -> Tensor

    Other calls are left to torch.
    """
    if not label_smoothing or target.is_floating_point():
        return NotImplemented
    axis = min(self.dim() - 1, 1)
    logarithms = torch.log_softmax(self, axis)
    own = torch.nn.functional.nll_loss(
        logarithms, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction]
    )
    is_ignored = target == ignore_index
    shape = [-1 if other == axis else 1 for other in range(self.dim())]
    weighted = logarithms if weight is None else logarithms * weight.reshape(shape)
    spread = torch.where(is_ignored, 0.0, -weighted.sum(axis))
    if reduction:
        spread = spread.sum()
    if reduction == 1:
        # torch 2.13 reads the number in an index without axes.
        places = torch.where(is_ignored, 0, target).flatten()
        counted = torch.ones_like(places, dtype=self.dtype) if weight is None else weight.index_select(0, places)
        spread = spread / torch.where(is_ignored.flatten(), 0.0, counted).sum()
    return own * (1 - label_smoothing) + spread * (label_smoothing / self.shape[axis])
