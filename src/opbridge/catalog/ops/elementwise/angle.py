"""The angle of real numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.nan import keeps_nan
from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for, working_type


@decomposition("aten::angle", overrides="torch's mapping returns integers for integers, and 0 for NaN")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, *FLOATING)
def angle(self: Tensor) -> Tensor:
    """The angle of real numbers: pi for negative numbers, 0 for others, NaN for NaN; in the default dtype for integers.

    angle(Tensor self) -> Tensor
    """
    if self.is_floating_point():
        x = self.to(working_type(self.dtype))
        if not keeps_nan():
            return (x < 0).to(x.dtype).mul(math.pi).to(self.dtype)
        # NaN < 0 is false. OpenVINO's minimum is NaN only if the second number is.
        rest = torch.minimum(torch.zeros((), dtype=x.dtype), x)
        return torch.where(x < 0, math.pi, rest).to(self.dtype)
    return (self < 0).to(torch.get_default_dtype()) * math.pi
