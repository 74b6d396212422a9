"""The angle of real numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.numerics.by_type import FLOATING, only_for
from opbridge.spec import decomposition


@decomposition("aten::angle", overrides="torch's mapping gives integers their own type, and 0 for NaN")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, *FLOATING)
def angle(self: Tensor) -> Tensor:
    """The angle of real numbers: pi for a negative one, 0 for others, NaN for NaN; of integers in the default type.

    angle(Tensor self) -> Tensor
    """
    if self.is_floating_point():
        return torch.where(self >= 0, 0, torch.where(self < 0, math.pi, self))
    return (self < 0).to(torch.get_default_dtype()) * math.pi
