"""Hamming's window, with the coefficients of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::hamming_window", overrides="ONNX's HammingWindow has the coefficients 25/46 and 21/46, not 0.54")
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    **_options: Any,
) -> Tensor:
    """The numbers alpha - beta cos(2 pi n / N), where N is the length, or one less for a symmetric window.

    hamming_window.periodic_alpha_beta(int window_length, bool periodic, float alpha, float beta, *,
    ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
    """
    dtype = dtype or torch.get_default_dtype()
    if window_length < 2:
        return torch.ones(window_length, dtype=dtype)
    places = torch.arange(window_length, dtype=torch.int64).to(torch.float64)
    angles = places * (2 * math.pi / (window_length - (not periodic)))
    return (alpha - beta * torch.cos(angles)).to(dtype)
