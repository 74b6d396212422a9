"""Kronecker products with dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.kron")
@rewrite("torch.Tensor.kron")
def kron(original: Callable[..., Any], input: Tensor, other: Tensor) -> Any:
    """The blocks of ``other`` multiplied by each element of ``input``.

    kron(Tensor self, Tensor other) -> Tensor

    torch's function reads the sizes as integers, which makes them constant.
    """
    if have_fixed_sizes(input, other):
        return NotImplemented
    rank = max(input.dim(), other.dim())
    own = [1] * (rank - input.dim()) + list(input.shape)
    inner = [1] * (rank - other.dim()) + list(other.shape)
    blocks = input.reshape([size for one in own for size in (one, 1)])
    block = other.reshape([size for one in inner for size in (1, one)])
    return (blocks * block).reshape([outer * one for outer, one in zip(own, inner, strict=True)])
