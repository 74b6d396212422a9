"""Shifts of integers: Python's operators ``<<`` and ``>>`` between tensors, and shifts of uint8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping of a shift of uint8 gives int8"


@decomposition("aten::__lshift__", overrides=_WHY)
def lshift(self: Tensor, other: Any) -> Tensor:
    """The bits of ``self`` shifted to the left.

    __lshift__.Tensor(Tensor self, Tensor other) -> Tensor
    __lshift__.Scalar(Tensor self, Scalar other) -> Tensor
    """
    return torch.bitwise_left_shift(self, other)


@decomposition("aten::__rshift__", overrides=_WHY)
def rshift(self: Tensor, other: Any) -> Tensor:
    """The bits of ``self`` shifted to the right; the sign bit is repeated.

    __rshift__.Tensor(Tensor self, Tensor other) -> Tensor
    __rshift__.Scalar(Tensor self, Scalar other) -> Tensor
    """
    return torch.bitwise_right_shift(self, other)


@decomposition("aten::bitwise_left_shift", overrides=_WHY)
def bitwise_left_shift(self: Any, other: Any) -> Tensor:
    """The bits of ``self`` shifted to the left.

    bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor
    bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor
    bitwise_left_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor
    """
    return _of_bytes(torch.bitwise_left_shift, self, other)


@decomposition("aten::bitwise_right_shift", overrides=_WHY)
def bitwise_right_shift(self: Any, other: Any) -> Tensor:
    """The bits of ``self`` shifted to the right.

    bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor
    bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor
    bitwise_right_shift.Scalar_Tensor(Scalar self, Tensor other) -> Tensor
    """
    return _of_bytes(torch.bitwise_right_shift, self, other)


def _of_bytes(shift: Callable[[Any, Any], Tensor], *operands: Any) -> Tensor:
    """A shift of uint8, computed in int32; other types are left to torch's mapping."""
    if torch.result_type(*operands) != torch.uint8:
        return NotImplemented
    wide = (one.to(torch.int32) if isinstance(one, Tensor) else one for one in operands)
    return (shift(*wide) & 255).to(torch.uint8)
