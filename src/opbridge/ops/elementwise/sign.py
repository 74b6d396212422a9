"""Signs, where NaN has none."""

from __future__ import annotations

from torch import Tensor

from opbridge.numerics.by_type import FLOATING, only_for
from opbridge.spec import decomposition


@decomposition("aten::sign", overrides="PyTorch's sign of NaN is 0, that of engines is NaN")
@decomposition("aten::sgn", overrides="PyTorch's sign of NaN is 0, that of engines is NaN")
@only_for(*FLOATING)
def sign(self: Tensor) -> Tensor:
    """1 of a positive number, -1 of a negative one, 0 of others.

    sign(Tensor self) -> Tensor
    sgn(Tensor self) -> Tensor
    """
    return (self > 0).to(self.dtype) - (self < 0).to(self.dtype)
