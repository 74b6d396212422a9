"""Matrix products with an inner dimension of 0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linear", overrides="engines do not support an inner dimension of 0 together with a bias")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """The bias, which is ``input`` @ ``weight``.T + ``bias`` for an inner dimension of 0.

    linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor
    """
    terms = input.shape[-1]
    if not isinstance(terms, int) or terms > 0:
        return NotImplemented
    product = torch.zeros([*input.shape[:-1], *weight.shape[:-1]], dtype=input.dtype)
    return product if bias is None else product + bias


_WHY = "ONNX Runtime returns uninitialized memory for batched products with an inner dimension of 0"


@decomposition("aten::matmul", overrides=_WHY)
@decomposition("aten::bmm", overrides=_WHY)
def matmul(self: Tensor, other: Tensor) -> Any:
    """Zeros if the inner dimension is 0.

    matmul(Tensor self, Tensor other) -> Tensor
    bmm(Tensor self, Tensor mat2) -> Tensor
    """
    terms = self.shape[-1]
    if not isinstance(terms, int) or terms > 0:
        return NotImplemented
    batch = torch.broadcast_shapes(self.shape[:-2], other.shape[:-2])
    return torch.zeros([*batch, *self.shape[-2:-1], *other.shape[-1:][: other.dim() - 1]], dtype=self.dtype)
