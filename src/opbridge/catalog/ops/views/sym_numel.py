"""The number of elements of a tensor with dynamic sizes."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::sym_numel")
def sym_numel(self: Any) -> Any:
    """The number of elements, as returned by ``x.numel()``.

    sym_numel(Tensor self) -> SymInt
    """
    return op.Size(self)
