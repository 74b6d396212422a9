"""Dropout in training mode, which does not use Dropout nodes because ONNX Runtime removes them."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::native_dropout", overrides="ONNX Runtime removes the Dropout node of torch's mapping")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Elements zeroed with probability ``p`` and otherwise scaled by 1 / (1 - p), and a mask of those kept.

    native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)
    """
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(input), torch.zeros_like(input, dtype=torch.bool)
    kept = torch.rand_like(input, dtype=torch.float32) >= p
    return input * kept.to(input.dtype) * (1 / (1 - p)), kept
