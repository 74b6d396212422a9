"""Conversion between complex tensors and their real and imaginary parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["joined", "parts", "real_type"]

_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; a real dtype unchanged."""
    return _REAL.get(dtype, dtype)


def parts(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a tensor or a number; for a real one, itself and zero."""
    if isinstance(value, Tensor):
        if not value.is_complex():
            return value, torch.zeros_like(value)
        pair = torch.view_as_real(value)
        return pair.select(-1, 0), pair.select(-1, 1)
    if isinstance(value, complex):
        return value.real, value.imag
    return value, 0


def joined(real: Tensor, imaginary: Tensor) -> Tensor:
    """The complex tensor with two parts of the same dtype, which are broadcast."""
    return torch.view_as_complex(torch.stack(torch.broadcast_tensors(real, imaginary), -1))
