"""A test for fixed sizes, for rules that only dynamic sizes need."""

from __future__ import annotations

from torch import Tensor

__all__ = ["have_fixed_sizes"]


def have_fixed_sizes(*tensors: Tensor) -> bool:
    """Whether every size of the tensors is a number in the graph; a dynamic size is a symbol."""
    return all(isinstance(size, int) for tensor in tensors for size in tensor.shape)
