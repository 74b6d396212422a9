"""Products of matrices that have no terms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linear", overrides="engines refuse a product with no terms beside a sum")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """What is left of ``input`` @ ``weight``.T + ``bias`` for rows of no elements: the bias.

    linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
    """
    terms = input.shape[-1]
    if not isinstance(terms, int) or terms > 0:
        return NotImplemented
    product = torch.zeros([*input.shape[:-1], *weight.shape[:-1]], dtype=input.dtype)
    return product if bias is None else product + bias


_WHY = "ONNX Runtime leaves memory as it was where the products of a batch have no terms"


@decomposition("aten::matmul", overrides=_WHY)
@decomposition("aten::bmm", overrides=_WHY)
def matmul(self: Tensor, other: Tensor) -> Any:
    """Zeros, where the rows of the first and the columns of the second have no elements.

    matmul(Tensor self, Tensor other) -> Tensor
    bmm(Tensor self, Tensor mat2) -> Tensor
    """
    terms = self.shape[-1]
    if not isinstance(terms, int) or terms > 0:
        return NotImplemented
    batch = torch.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    return torch.zeros([*batch, *self.shape[-2:-1], *other.shape[-1:][: other.dim() - 1]], dtype=self.dtype)
