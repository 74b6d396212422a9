"""Products along an axis, also for rank 0."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation
from opbridge.catalog.formulas.element_types import FLOATS


@translation("aten::prod.dim_int", overrides="torch's mapping fails for rank 0, and does not widen int32 to int64")
def prod(self: Any, dim: int, keepdim: bool = False, *, dtype: int = -1) -> Any:
    """The product along ``dim``; int64 for integers unless ``dtype`` is given.

    prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
    """
    is_chosen = dtype not in (None, -1)
    x = op.Cast(self, to=dtype if is_chosen else self.dtype if self.dtype in FLOATS else INT64.dtype)
    if len(self.shape) == 0:
        return x
    return op.ReduceProd(x, op.Constant(value_ints=[dim]), keepdims=int(keepdim))
