"""``where`` with a condition of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.where")
def where(original: Callable[..., Any], condition: Tensor, *values: Any, **options: Any) -> Any:
    """The same with a boolean condition: PyTorch accepts one of uint8, and the operator's shape function does not."""
    if not values or condition.dtype is not torch.uint8:
        return NotImplemented
    return original(condition.bool(), *values, **options)
