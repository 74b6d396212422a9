"""Covariances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.cov")
@rewrite("torch.Tensor.cov")
def cov(
    original: Callable[..., Tensor],
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of the variables in the rows; the columns are observations.

    cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor

    PyTorch reads the weights to reject negative ones, which a graph cannot do.
    """
    values = input.reshape(1, -1) if input.dim() < 2 else input
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    total = torch.full((), values.shape[-1], dtype=torch.int64) if weights is None else weights.sum()
    weighted = values if weights is None else values * weights
    centred = values - (weighted.sum(1) / total).unsqueeze(-1)
    if weights is not None and aweights is not None and correction != 0:
        divisor = total - correction * (weights * aweights).sum() / total
    else:
        divisor = total - correction
    products = (centred if weights is None else centred * weights) @ centred.mH
    return products.div(divisor.clamp(min=0)).squeeze()
