"""Random permutations: the order of random numbers, by a sort or as a custom node with a kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::OrderOfUniform", "order_of_uniform.h")


@decomposition("aten::randperm")
def randperm(n: int, *, dtype: torch.dtype | None = torch.int64, device: Any = None, **options: Any) -> Tensor:
    """The integers from 0 to ``n - 1`` in random order: that of as many random numbers.

    randperm(SymInt n, *, ScalarType? dtype=long, Layout? layout=None, Device? device=None, ...) -> Tensor
    randperm.generator(SymInt n, *, Generator? generator, ScalarType? dtype=long, ...) -> Tensor
    """
    return order_of_uniform(torch.rand(n, device=device)).to(dtype or torch.int64)


@torch.library.custom_op("opbridge::order_of_uniform", mutates_args=())
def order_of_uniform(numbers: Tensor) -> Tensor:
    """The order of numbers in [0, 1): the places of the smallest, the second smallest, ..."""
    return numbers.argsort(stable=True)


@order_of_uniform.register_fake
def _shape(numbers: Tensor) -> Tensor:
    return numbers.new_empty(numbers.shape, dtype=torch.int64)


@decomposition("opbridge::order_of_uniform")
@body_for("opbridge::OrderOfUniform")
def by_sort(numbers: Tensor) -> Tensor:
    """The same as a sort.

    order_of_uniform(Tensor numbers) -> Tensor
    """
    return numbers.argsort()


@kernel_translation("opbridge::order_of_uniform")
def with_kernel(numbers: Any) -> Any:
    """``order_of_uniform`` as a custom node with a kernel.

    order_of_uniform(Tensor numbers) -> Tensor
    """
    return custom_node("opbridge::OrderOfUniform", numbers)
