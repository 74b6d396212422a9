"""Layer normalization that also returns the mean and the inverse standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_in_layer_norm: ContextVar[bool] = ContextVar("_in_layer_norm", default=False)
"""Whether the operator is called for ``layer_norm``, which an engine may refuse, and which then consists of it."""


@decomposition("aten::native_layer_norm", overrides="torch's mapping returns the statistics of every dtype in float32")
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """The normalization over the last axes, the mean and 1 / sqrt(variance + eps), all in the dtype of ``input``.

    native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)
    -> (Tensor, Tensor, Tensor)

    In float32 it is one LayerNormalization, which has the three results.
    """
    if input.dtype == torch.float32 and not _in_layer_norm.get():
        return NotImplemented
    axes = list(range(-len(normalized_shape), 0))
    working = input.to(torch.promote_types(input.dtype, torch.float32))
    variance, mean = torch.var_mean(working, axes, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + eps)
    if _in_layer_norm.get():
        result = _affine((working - mean) * inverse, weight, bias).to(input.dtype)
    else:
        token = _in_layer_norm.set(True)
        try:
            result = torch.layer_norm(input, normalized_shape, weight, bias, eps)
        finally:
            _in_layer_norm.reset(token)
    return result, mean.to(input.dtype), inverse.to(input.dtype)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias
