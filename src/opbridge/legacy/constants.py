"""Arguments that are no tensors, as the constants that TorchScript makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["SCALAR_TYPES", "is_numbers", "number"]

SCALAR_TYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8, torch.quint8, torch.qint32,
    torch.bfloat16,
)  # fmt: skip
"""The element types in the order of the numbers that TorchScript has for them."""


def is_numbers(items: Sequence[Any]) -> bool:
    """Whether a list is one constant in TorchScript: numbers, all known."""
    return bool(items) and all(isinstance(item, (bool, int, float)) for item in items)


def number(item: Any) -> torch.Tensor:
    """TorchScript's constant of a number or a list of numbers: one float is a double, a list has the default type."""
    return torch.tensor(item, dtype=torch.float64) if isinstance(item, float) else torch.tensor(item)
