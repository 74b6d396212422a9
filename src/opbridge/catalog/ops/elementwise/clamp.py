"""``clamp`` with an integer limit beside a floating-point limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.clamp")
@rewrite("torch.clip")
@rewrite("torch.Tensor.clamp")
@rewrite("torch.Tensor.clip")
def clamp(original: Callable[..., Tensor], input: Tensor, min: Any = None, max: Any = None, **options: Any) -> Any:
    """The elements, at least ``min`` and at most ``max``; torch.onnx can't convert limits of two types.

    clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor
    """
    if {type(min), type(max)} != {int, float}:
        return NotImplemented
    return original(input, float(min), float(max), **options)
