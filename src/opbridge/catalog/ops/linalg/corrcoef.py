"""Correlation coefficients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.ops.linalg.cov import cov


@rewrite("torch.corrcoef")
@rewrite("torch.Tensor.corrcoef")
def corrcoef(original: Callable[..., Tensor], input: Tensor) -> Tensor:
    """Pearson's correlation coefficients of the variables in the rows, between -1 and 1.

    corrcoef(Tensor self) -> Tensor
    """
    # Rewrites do not apply inside a rewrite.
    covariances = cov(torch.cov, input)
    if covariances.dim() == 0:
        return covariances / covariances
    deviations = covariances.diagonal().real.sqrt()
    ratios = covariances / deviations.unsqueeze(-1) / deviations
    if not ratios.is_complex():
        return ratios.clamp(-1, 1)
    return torch.complex(ratios.real.clamp(-1, 1), ratios.imag.clamp(-1, 1))
