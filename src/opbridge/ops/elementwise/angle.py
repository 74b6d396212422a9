"""The angle of integers and booleans."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opbridge.numerics.by_type import only_for
from opbridge.spec import decomposition


@decomposition("aten::angle", overrides="torch's mapping gives integers their own type")
@only_for(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
def angle(self: Tensor) -> Tensor:
    """The angle of integers and booleans, in the default type: pi for a negative number, 0 for any other.

    angle(Tensor self) -> Tensor
    """
    return (self < 0).to(torch.get_default_dtype()) * math.pi
