"""Products of rows and weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.spec import decomposition


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
