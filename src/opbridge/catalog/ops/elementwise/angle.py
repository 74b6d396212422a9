"""The angle of real numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import FLOATING, only_for, working_type


@decomposition("aten::angle", overrides="torch's mapping gives integers their own type, and 0 for NaN")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, *FLOATING)
def angle(self: Tensor) -> Tensor:
    """The angle of real numbers: pi for a negative one, 0 for others, NaN for NaN; of integers in the default type.

    angle(Tensor self) -> Tensor
    """
    if self.is_floating_point():
        x = self.to(working_type(self.dtype))
        # A NaN is not below 0. OpenVINO's smallest of two numbers is NaN where the second is.
        rest = torch.minimum(torch.zeros((), dtype=x.dtype), x)
        return torch.where(x < 0, math.pi, rest).to(self.dtype)
    return (self < 0).to(torch.get_default_dtype()) * math.pi
