"""Rounding of integers, which changes nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.by_type import only_for

_WHY = "ONNX rounds floating-point numbers alone"
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@decomposition("aten::ceil", overrides=_WHY)
@only_for(*_INTEGERS)
def ceil(self: Tensor) -> Tensor:
    """The integers themselves.

    ceil(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::floor", overrides=_WHY)
@only_for(*_INTEGERS)
def floor(self: Tensor) -> Tensor:
    """The integers themselves.

    floor(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::trunc", overrides=_WHY)
@only_for(*_INTEGERS)
def trunc(self: Tensor) -> Tensor:
    """The integers themselves.

    trunc(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::round.default", overrides=_WHY)
@only_for(*_INTEGERS)
def round_integers(self: Tensor) -> Tensor:
    """The integers themselves.

    round(Tensor self) -> Tensor
    """
    return self.clone()
