"""Dropout that stays: ONNX Runtime takes a Dropout node away, in training mode too, where it is no output."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::native_dropout", overrides="ONNX Runtime drops the Dropout node that torch's mapping writes")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Elements zeroed with probability ``p``, the others scaled by 1 / (1 - p); which were kept.

    native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)
    """
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(input), torch.zeros_like(input, dtype=torch.bool)
    kept = torch.rand_like(input, dtype=torch.float32) >= p
    return input * kept.to(input.dtype) * (1 / (1 - p)), kept
