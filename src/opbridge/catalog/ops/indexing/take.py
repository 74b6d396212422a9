"""Selection of elements by their positions in the flattened tensor."""

from __future__ import annotations

from typing import Any

from onnxscript import INT64
from onnxscript import opset18 as op

from opbridge.catalog.declare.spec import translation


@translation("aten::take", overrides="torch's decomposition fails for an index whose size depends on data")
def take(self: Any, index: Any) -> Any:
    """The elements of the flattened ``self`` at ``index``, which may be negative, in the shape of ``index``.

    take(Tensor self, Tensor index) -> Tensor
    """
    flat = op.Reshape(self, op.Constant(value_ints=[-1]))
    return op.Gather(flat, op.Cast(index, to=INT64.dtype))
