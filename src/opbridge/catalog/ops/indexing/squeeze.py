"""Removal of axes of length 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::squeeze.dims", overrides="torch's mapping fails for several axes of which none has length 1")
def squeeze(self: Any, dim: Sequence[int]) -> Any:
    """The tensor without those of the given axes that have length 1.

    squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)
    """
    rank = len(self.shape)
    axes = sorted({place % rank for place in dim if self.shape[place] == 1}) if rank else []
    return op.Squeeze(self, op.Constant(value_ints=axes)) if axes else op.Identity(self)


@translation("aten::squeeze.dim", overrides="torch's mapping removes the axis whatever its length")
def squeeze_one(self: Any, dim: int) -> Any:
    """The tensor without the given axis if it has length 1.

    squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)
    """
    return squeeze(self, (dim,))
