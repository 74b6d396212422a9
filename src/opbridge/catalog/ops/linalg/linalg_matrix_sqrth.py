"""The square root of a symmetric positive definite matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linalg_matrix_sqrth")
def linalg_matrix_sqrth(self: Tensor) -> Tensor:
    """The positive definite square root of a matrix, of which the lower triangle is read.

    linalg_matrix_sqrth(Tensor self) -> Tensor

    The result is V sqrt(w) Vᴴ for the eigenvalues w and the eigenvectors V (Higham, "Functions of Matrices", 6.2).
    """
    values, vectors = torch.linalg.eigh(self)
    return (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.mH
