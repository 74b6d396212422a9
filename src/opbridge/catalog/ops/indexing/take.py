"""Elements by their position in the flattened tensor."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::take", overrides="torch's decomposition fails on an index whose size depends on the data")
def take(self: Any, index: Any) -> Any:
    """The elements of the flattened ``self`` at ``index``, which may be negative; the result has index's shape.

    take(Tensor self, Tensor index) -> Tensor
    """
    flat = op.Reshape(self, op.Constant(value_ints=[-1]))
    return op.Gather(flat, op.Cast(index, to=INT64.dtype))
