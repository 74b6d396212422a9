"""The stride of a tensor with dynamic sizes."""

from __future__ import annotations

from typing import Any

from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::sym_stride.int")
def sym_stride(self: Any, dim: int) -> Any:
    """The distance of two neighbours along an axis in a contiguous tensor, as every tensor of an engine is.

    sym_stride.int(Tensor self, int dim) -> SymInt
    """
    following = len(self.shape) - 1 - dim % len(self.shape)
    if not following:
        return op.Constant(value_int=1)
    return op.ReduceProd(op.Shape(self, start=-following), keepdims=0)
