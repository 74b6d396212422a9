"""Linear systems and inverses by a Cholesky factorization."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::cholesky")
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """The triangular factor of each positive definite matrix.

    cholesky(Tensor self, bool upper=False) -> Tensor
    """
    return torch.linalg.cholesky_ex(self, upper=upper)[0]


@decomposition("aten::cholesky_solve")
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution X of A X = B, where ``self`` is B, from the Cholesky factor of A.

    cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor
    """
    lower, higher = (input2.mH, input2) if upper else (input2, input2.mH)
    return torch.linalg.solve_triangular(higher, torch.linalg.solve_triangular(lower, self, upper=False), upper=True)


@decomposition("aten::cholesky_inverse")
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A from its Cholesky factor (.., n, n).

    cholesky_inverse(Tensor self, bool upper=False) -> Tensor
    """
    identity = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
    return cholesky_solve(identity.expand(self.shape), self, upper)
