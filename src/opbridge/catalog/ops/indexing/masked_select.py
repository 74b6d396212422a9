"""The elements under a mask, as ONNX Compress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite, translation


@translation("aten::masked_select")
def masked_select(self: Any, mask: Any) -> Any:
    """The elements of ``self`` at which ``mask`` is true, after broadcasting, as a vector in row-major order.

    masked_select(Tensor self, Tensor mask) -> Tensor
    """
    flat = op.Constant(value_ints=[-1])
    values = op.Expand(self, op.Shape(mask))
    condition = op.Expand(mask, op.Shape(self))
    return op.Compress(op.Reshape(values, flat), op.Reshape(condition, flat), axis=0)


@rewrite("torch.masked_select")
def masked_select_broadcast(original: Callable[..., Tensor], input: Tensor, mask: Tensor) -> Tensor:
    """Broadcast the tensors first, because torch's shape function bounds the result only by ``input``.

    masked_select(Tensor self, Tensor mask) -> Tensor
    """
    return original(*torch.broadcast_tensors(input, mask))
