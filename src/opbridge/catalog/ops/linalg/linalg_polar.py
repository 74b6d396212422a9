"""The polar decomposition."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linalg_polar")
def linalg_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest matrix with orthonormal columns, and the positive semidefinite factor.

    linalg_polar(Tensor A) -> (Tensor U, Tensor H)

    For A = W S Vᴴ the factors are W Vᴴ and V S Vᴴ (Higham, "Functions of Matrices", 8.1).
    """
    left, values, right = torch.linalg.svd(A, full_matrices=False)
    return left @ right, (right.mH * values.unsqueeze(-2)) @ right
