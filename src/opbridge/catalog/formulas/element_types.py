"""Sets of element types, and decompositions that apply to some element types only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from onnxscript import BFLOAT16, DOUBLE, FLOAT, FLOAT16

__all__ = ["FLOATING", "FLOATS", "HALVES", "INTEGERS", "limited_to", "only_for", "working_type"]

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""PyTorch's real floating-point types, for decompositions."""

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""PyTorch's integer types with arithmetic, for decompositions."""

HALVES = frozenset({FLOAT16.dtype, BFLOAT16.dtype})
"""ONNX's 16-bit floating-point types, for translations: ``self.dtype in HALVES``."""

FLOATS = HALVES | {FLOAT.dtype, DOUBLE.dtype}
"""ONNX's real floating-point types, for translations."""

_ATTRIBUTE = "__opbridge_element_types__"


def only_for(*dtypes: torch.dtype) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Apply a decomposition only to calls whose first tensor has one of these element types.

    For any other element type the decomposition returns ``NotImplemented``, and torch continues as if it did not exist.

    Args:
        dtypes: For example ``torch.float64``, for which few engines have kernels.
    """

    def limited(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def decompose(*args: Any, **kwargs: Any) -> Any:
            first = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)
            dtype = kwargs.get("dtype") if first is None else first.dtype
            return function(*args, **kwargs) if dtype in dtypes else NotImplemented

        setattr(decompose, _ATTRIBUTE, dtypes)
        return decompose

    return limited


def limited_to(function: Callable[..., Any]) -> tuple[torch.dtype, ...]:
    """The element types that a decomposition applies to; empty if it applies to all."""
    return tuple(getattr(function, _ATTRIBUTE, ()))


def working_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which PyTorch's kernels compute results of ``dtype``: float32 for float16 and bfloat16."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
