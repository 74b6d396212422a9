"""The error function in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for
from opbridge.catalog.formulas.series import polynomial

_TOP = (
    55592.3013010394962768,
    7003.32514112805075473,
    2232.00534594684319226,
    90.0260197203842689,
    9.60497373987051639,
)
_BOTTOM = (
    *(49267.3942608635921086, 22629.0000613890934246, 4594.32382970980127987, 521.357949780152679795),
    *(33.5617141647503099647, 1.0),
)


@decomposition("aten::erf", overrides="engines do not support Erf in float64")
@only_for(torch.float64)
def erf(self: Tensor) -> Tensor:
    """The error function, for float64: a quotient of polynomials up to 1, and 1 - erfc(x) above.

    erf(Tensor self) -> Tensor

    The quotient is from Cephes (ndtr.c). Above 6 the result is 1.
    """
    square = (self * self).clamp(0.0, 1.0)
    near = self * (polynomial(square, _TOP) / polynomial(square, _BOTTOM))
    size = self.abs().clamp(1.0, 6.0)
    far = torch.sign(self) * (1 - torch.special.erfcx(size) * torch.exp(-size * size))
    return torch.where(self.isnan(), self, torch.where(self.abs() <= 1, near, far))
