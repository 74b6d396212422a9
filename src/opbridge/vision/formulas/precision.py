"""The precision in which decisions are made."""

import torch
from torch import Tensor

__all__ = ["widened"]


def widened(numbers: Tensor) -> Tensor:
    """Float16 and bfloat16 as float32: whether boxes overlap must not depend on how an engine rounds."""
    return numbers.float() if numbers.dtype in (torch.float16, torch.bfloat16) else numbers
