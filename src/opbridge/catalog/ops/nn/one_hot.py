"""One-hot encoding, also with a number of classes that depends on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.functional.one_hot")
def one_hot(original: Callable[..., Tensor], tensor: Tensor, num_classes: Any = -1) -> Tensor:
    """The one-hot rows of class indices; by default the number of classes is the largest index plus 1.

    one_hot(Tensor self, int num_classes=-1) -> Tensor

    torch would make a dynamic number of classes constant.
    """
    if isinstance(num_classes, int) and num_classes != -1:
        return original(tensor, num_classes)
    count = num_classes
    if isinstance(num_classes, int):
        count = tensor.max().item() + 1
        torch._check(count >= 1)
    return (tensor.unsqueeze(-1) == torch.arange(count)).to(torch.int64)
