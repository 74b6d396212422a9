"""The derivatives of digamma."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@in_working_precision
def _derivative(self: Tensor, n: int) -> Tensor:
    factor = float(math.factorial(n)) if n <= 170 else math.inf
    order = torch.scalar_tensor(n + 1, dtype=self.dtype)
    return (-1) ** (n + 1) * factor * torch.special.zeta(order, self)


@decomposition("aten::polygamma")
def polygamma(n: int, self: Tensor) -> Tensor:
    """The n-th derivative of digamma, by the Hurwitz zeta function (DLMF 25.11.12).

    polygamma(int n, Tensor self) -> Tensor
    """
    return torch.digamma(self) if n == 0 else _derivative(self, n)
