"""Division of integers that is rounded, in integers."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.numerics.by_type import only_for
from opbridge.spec import decomposition

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@decomposition(
    "aten::div.Tensor_mode",
    overrides="torch.onnx divides integers in float32, which has 24 bits for them",
)
@only_for(*_INTEGERS)
def div_mode(self: Tensor, other: Tensor, *, rounding_mode: str | None) -> Tensor:
    """The quotient, rounded down ("floor") or towards 0 ("trunc"): exact, also above 2**24.

    div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
    """
    integral = other.dtype in _INTEGERS if isinstance(other, Tensor) else isinstance(other, int)
    if rounding_mode is None or not integral:
        return NotImplemented
    if rounding_mode == "floor":
        return torch.floor_divide(self, other)
    # What is left after fmod, which has the sign of ``self``, is a multiple of ``other``: nothing is rounded.
    return torch.floor_divide(self - torch.fmod(self, other), other)
