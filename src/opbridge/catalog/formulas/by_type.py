"""Decompositions for some element types only; the operator keeps its other mapping in all others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["FLOATING", "limited_to", "only_for", "working_type"]

FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""The real types that are no integers."""

_ATTRIBUTE = "__opbridge_element_types__"


def only_for(*dtypes: torch.dtype) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a decomposition serve calls whose first tensor has one of these element types.

    It returns ``NotImplemented`` for the rest, on which torch goes on as if there were no such decomposition.

    Args:
        dtypes: For example ``torch.float64``, which few engines have kernels for.
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
    """The element types that a decomposition is for; none where it is for all."""
    return tuple(getattr(function, _ATTRIBUTE, ()))


def working_type(dtype: torch.dtype) -> torch.dtype:
    """The type that PyTorch's kernels compute in for results of this one: float32 for those of half its size."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
