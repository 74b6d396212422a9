"""Rounding of integers, which is the identity."""

from __future__ import annotations

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import INTEGERS, only_for

_WHY = "ONNX supports rounding only for floating-point types"


@decomposition("aten::ceil", overrides=_WHY)
@only_for(*INTEGERS)
def ceil(self: Tensor) -> Tensor:
    """The integers unchanged.

    ceil(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::floor", overrides=_WHY)
@only_for(*INTEGERS)
def floor(self: Tensor) -> Tensor:
    """The integers unchanged.

    floor(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::trunc", overrides=_WHY)
@only_for(*INTEGERS)
def trunc(self: Tensor) -> Tensor:
    """The integers unchanged.

    trunc(Tensor self) -> Tensor
    """
    return self.clone()


@decomposition("aten::round.default", overrides=_WHY)
@only_for(*INTEGERS)
def round_integers(self: Tensor) -> Tensor:
    """The integers unchanged.

    round(Tensor self) -> Tensor
    """
    return self.clone()
