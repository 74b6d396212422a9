"""Products of sparse matrices, which are dense in a captured model."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::_sparse_addmm")
def sparse_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta self + alpha mat1 @ mat2``.

    _sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    return torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha)
