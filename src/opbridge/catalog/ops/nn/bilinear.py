"""Bilinear forms of two vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.bilinear")
def bilinear(
    original: Callable[..., Tensor], input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Any:
    """input1ᵀ W input2 + bias for each matrix W in ``weight`` (outputs, inputs1, inputs2); dynamic sizes stay dynamic.

    bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor
    """
    tensors = (input1, input2, weight)
    if have_fixed_sizes(*tensors):
        return NotImplemented
    outputs, _, terms = weight.shape
    rows = input1.matmul(weight.transpose(0, 1).flatten(1)).reshape([*input1.shape[:-1], outputs, terms])
    products = rows.matmul(input2.unsqueeze(-1)).squeeze(-1)
    return products if bias is None else products + bias
