"""Comparisons of whole tensors with a single result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.equal")
def equal(original: Callable[..., bool], input: Tensor, other: Tensor) -> Any:
    """Whether two tensors have the same shape and equal elements, as a tensor.

    equal(Tensor self, Tensor other) -> bool
    """
    if input.dim() != other.dim() or input.shape != other.shape:
        return False
    return (input == other).all().item()


@rewrite("torch.allclose")
def allclose(
    original: Callable[..., bool],
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Any:
    """Whether all elements are close, as a tensor.

    allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool
    """
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()
