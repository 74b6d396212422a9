"""Layer normalization that also returns the mean and the inverse standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::native_layer_norm", overrides="torch's mapping returns the statistics in float32")
def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalization over the last axes, the mean and 1 / sqrt(variance + eps), all in the dtype of ``input``.

    native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps)
    -> (Tensor, Tensor, Tensor)
    """
    axes = list(range(-len(normalized_shape), 0))
    working = input.to(torch.promote_types(input.dtype, torch.float32))
    variance, mean = torch.var_mean(working, axes, correction=0, keepdim=True)
    result = torch.layer_norm(input, normalized_shape, weight, bias, eps)
    return result, mean.to(input.dtype), torch.rsqrt(variance + eps).to(input.dtype)
