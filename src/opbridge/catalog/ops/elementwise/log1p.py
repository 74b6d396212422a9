"""log(1 + x) and exp(x) - 1, accurate near 0."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.series import in_working_precision


@decomposition("aten::log1p", overrides="torch's mapping rounds 1 + x, which loses inputs below 1e-7")
@in_working_precision
def log1p(self: Tensor) -> Tensor:
    """log(1 + x).

    log1p(Tensor self) -> Tensor

    With the rounded sum u = 1 + x, log(u) is the logarithm of a number near 1 + x, and the factor x / (u - 1) corrects
    the difference (Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991,
    theorem 4). Where u is 1, the quotient log(u) / (u - 1) is 1, and for infinity it is that of the largest number.
    """
    if self.is_complex():
        return torch.log(1 + self)
    raised = 1 + self.clamp_max(torch.finfo(self.dtype).max)
    difference = raised - 1
    # A sum is much faster than a selection.
    is_one = (difference == 0).to(self.dtype)
    return self * ((torch.log(raised) + is_one) / (difference + is_one))


@decomposition("aten::expm1", overrides="torch's mapping rounds exp(x) before it subtracts 1")
@in_working_precision
def expm1(self: Tensor) -> Tensor:
    """exp(x) - 1.

    expm1(Tensor self) -> Tensor

    The result is tanh(x / 2) (exp(x) + 1), because tanh(x / 2) = (exp(x) - 1) / (exp(x) + 1) (DLMF 4.28.3, 4.35.20).
    """
    if self.is_complex():
        return torch.exp(self) - 1
    return torch.tanh(self / 2) * (torch.exp(self) + 1)
