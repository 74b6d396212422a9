"""The first columns of a product of Householder reflections."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linalg_householder_product")
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of Q, as many as ``input`` has: Q applied to the identity.

    linalg_householder_product(Tensor input, Tensor tau) -> Tensor
    """
    identity = torch.eye(*input.shape[-2:], dtype=input.dtype).expand(input.shape)
    return torch.ormqr(input[..., : tau.shape[-1]], tau, identity)
