"""Frequencies of a Fourier transform of dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.fft.fftfreq")
@rewrite("torch.fft.rfftfreq")
def fftfreq(original: Callable[..., Tensor], n: Any, d: float = 1.0, **options: Any) -> Any:
    """The frequencies of the bins of a transform of ``n`` numbers ``d`` apart; ``rfftfreq`` has the first half.

    fft_fftfreq(int n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None) -> Tensor

    torch would make a dynamic ``n`` constant.
    """
    if not isinstance(n, torch.SymInt) or "out" in options:
        return NotImplemented
    half = original.__name__.endswith("rfftfreq")
    number = torch.arange(n // 2 + 1 if half else n, dtype=torch.int64, device=options.get("device"))
    if not half:
        number = torch.where(number < (n + 1) // 2, number, number - n)
    return number.to(options.get("dtype") or torch.get_default_dtype()) * (1.0 / (n * d))
