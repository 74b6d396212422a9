"""The number of wavelet coefficients of a signal of a dynamic length, in PyWavelets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opbridge.catalog.declare.spec import rewrite


@rewrite("pywt.dwt_coeff_len")
def dwt_coeff_len(original: Callable[..., int], data_len: Any, filter_len: Any, mode: Any) -> Any:
    """``ceil(n / 2)`` in the mode "periodization", else ``floor((n + filter_len - 1) / 2)``, as PyWavelets documents.

    The original is compiled code, which makes a dynamic length constant.
    """
    if not isinstance(data_len, torch.SymInt):
        return NotImplemented
    # Both formulas are (n + g) // 2, and g follows from two neighbours: a // 2 + (a + 1) // 2 is a.
    growth = original(2, filter_len, mode) + original(3, filter_len, mode) - 2
    return (data_len + growth) // 2
