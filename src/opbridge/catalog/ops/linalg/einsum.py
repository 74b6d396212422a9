"""``einsum`` of integers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::einsum", overrides="torch's mapping sums integers in their own dtype, PyTorch in int64")
def einsum(equation: str, tensors: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Tensor:
    """The sum over some labels of a single integer tensor, in int64; without a sum, torch's mapping is correct.

    einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor
    """
    tensor = tensors[0]
    if len(tensors) > 1 or tensor.dtype == torch.int64 or tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return NotImplemented
    given, arrow, asked = equation.replace(" ", "").partition("->")
    kept = set(asked) if arrow else {label for label in given if label == "." or given.count(label) == 1}
    return torch.einsum(equation, tensor.long()) if set(given) - kept else NotImplemented
