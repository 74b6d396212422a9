"""Tensors with a permuted memory layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::empty_permuted")
def empty_permuted(
    size: Sequence[Any], physical_layout: Sequence[int], *, dtype: torch.dtype | None = None, **_options: Any
) -> Tensor:
    """A tensor of the given shape; ONNX has no memory layouts.

    empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor
    """
    return torch.empty(size, dtype=dtype)
