"""The negative log likelihood of normal distributions, without a check of the data."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(
    original: Callable[..., Tensor],
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(v) + (x - t)² / v) / 2 with v clamped to at least ``eps``, plus log(2 pi) / 2 if ``full`` is set.

    torch's function reads the data to raise an error for a negative variance; here a negative variance is replaced by
    ``eps``. A variance with one axis less than ``input`` applies to every element of the last axis.
    """
    spread = torch.full_like(input, var) if isinstance(var, float | int) else var
    if spread.dim() == input.dim() - 1 and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    spread = torch.where(spread < eps, eps, spread)
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
