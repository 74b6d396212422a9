"""The number of elements of a tensor of dynamic sizes."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::sym_numel")
def sym_numel(self: Any) -> Any:
    """How many elements it has, as ``x.numel()`` asks.

    sym_numel(Tensor self) -> SymInt
    """
    return op.Size(self)
