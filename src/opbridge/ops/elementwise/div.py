"""Division that is rounded: of integers in integers, and down."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.numerics.by_type import FLOATING
from opbridge.spec import decomposition

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


_FROM_ROUNDED = "torch's mapping rounds a rounded quotient down: 1 // 0.1 would be 10"


@decomposition(
    "aten::div.Tensor_mode",
    overrides=f"torch.onnx divides integers in float32, which has 24 bits for them; {_FROM_ROUNDED}",
)
def div_mode(self: Tensor, other: Tensor, *, rounding_mode: str | None) -> Tensor:
    """The quotient, rounded down ("floor") or towards 0 ("trunc"): of integers exact, also above 2**24.

    div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor
    """
    dtype = torch.result_type(self, other)
    if rounding_mode == "floor" and dtype in FLOATING:
        return _rounded_down(self, other, dtype)
    if rounding_mode is None or dtype not in _INTEGERS:
        return NotImplemented
    if rounding_mode == "floor":
        return torch.floor_divide(self, other)
    # What is left after fmod, which has the sign of ``self``, is a multiple of ``other``: nothing is rounded.
    return torch.floor_divide(self - torch.fmod(self, other), other)


@decomposition("aten::floor_divide", overrides=_FROM_ROUNDED)
def floor_divide(self: Tensor, other: Tensor) -> Tensor:
    """The quotient rounded down.

    floor_divide(Tensor self, Tensor other) -> Tensor
    """
    dtype = torch.result_type(self, other)
    return _rounded_down(self, other, dtype) if dtype in FLOATING else NotImplemented


def _rounded_down(self: Tensor, other: Tensor | float, dtype: torch.dtype) -> Tensor:
    """From ``fmod``, which is exact, as in PyTorch (``div_floor`` in aten/native/cpu/BinaryOpsKernel.cpp)."""
    a = self.to(dtype)
    b = other.to(dtype) if isinstance(other, Tensor) else torch.scalar_tensor(other, dtype=dtype)
    rest = torch.fmod(a, b)
    quotient = (a - rest) / b
    quotient = torch.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    # It is a whole number but for rounding.
    whole = torch.floor(quotient)
    return torch.where(b == 0, a / b, torch.where(quotient - whole > 0.5, whole + 1, whole))
