"""One-hot encoding, also with a number of classes that depends on the data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.nn.functional.one_hot")
def one_hot(original: Callable[..., Tensor], tensor: Tensor, num_classes: int = -1) -> Tensor:
    """The one-hot rows of class indices; by default the number of classes is the largest index plus 1.

    one_hot(Tensor self, int num_classes=-1) -> Tensor
    """
    if num_classes != -1:
        return original(tensor, num_classes)
    count = tensor.max().item() + 1
    torch._check(count >= 1)
    return (tensor.unsqueeze(-1) == torch.arange(count)).to(torch.int64)
