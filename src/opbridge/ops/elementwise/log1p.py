"""log(1 + x) and exp(x) - 1 with all digits near 0."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.numerics.series import in_working_precision
from opbridge.spec import decomposition


@decomposition("aten::log1p", overrides="torch's mapping adds 1 before the logarithm, and loses what is below 1e-7")
@in_working_precision
def log1p(self: Tensor) -> Tensor:
    """log(1 + x).

    log1p(Tensor self) -> Tensor

    With u = 1 + x as rounded, log(u) is the logarithm of a number near 1 + x, and x / (u - 1) makes up for the
    difference (Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991, theorem 4).
    """
    if self.is_complex():
        return torch.log(1 + self)
    raised = 1 + self
    difference = raised - 1
    mended = torch.log(raised) * (self / torch.where(difference == 0, 1, difference))
    return torch.where(difference == 0, self, torch.where(self == math.inf, self, mended))


@decomposition("aten::expm1", overrides="torch's mapping takes 1 from the exponential, and loses what is below 1e-7")
@in_working_precision
def expm1(self: Tensor) -> Tensor:
    """exp(x) - 1.

    expm1(Tensor self) -> Tensor

    Within 1 of 0 with u = exp(x) as rounded it is (u - 1) x / log(u), which Kahan gave: see N. Higham, "Accuracy and
    stability of numerical algorithms", 2002, section 1.14.1.
    """
    raised = torch.exp(self)
    less = raised - 1
    if self.is_complex():
        return less
    is_near = (self.abs() < 1) & (less != 0)
    mended = less * (self / torch.log(torch.where(is_near, raised, 2)))
    return torch.where(less == 0, self, torch.where(is_near, mended, less))
