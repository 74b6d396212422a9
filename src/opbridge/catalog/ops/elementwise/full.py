"""Constant tensors and ranges in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.element_types import only_for

_WHY = "torch's mapping rounds the number to float32"


@decomposition("aten::full", overrides=_WHY)
@only_for(torch.float64)
def full(size: Sequence[Any], fill_value: Any, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    """A tensor filled with one number, for float64.

    full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return torch.scalar_tensor(fill_value, dtype=dtype).expand(size)


@decomposition("aten::fill.Scalar", overrides=_WHY)
@only_for(torch.float64)
def fill(self: Tensor, value: Any) -> Tensor:
    """A tensor filled with one number, with the shape of another tensor, for float64.

    fill.Scalar(Tensor self, Scalar value) -> Tensor
    """
    return torch.scalar_tensor(value, dtype=self.dtype).expand(self.shape)


@decomposition("aten::arange.start_step", overrides="torch's mapping computes the number of steps in float32")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    """start, start + step, start + 2 step, ... up to ``end``.

    torch's mapping is exact for dynamic integers.

    arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None,
    Device? device=None, bool? pin_memory=None) -> Tensor
    """
    numbers = (start, end, step)
    is_whole = all(isinstance(number, int | torch.SymInt) for number in numbers)
    dtype = dtype or (torch.int64 if is_whole else torch.get_default_dtype())
    if dtype not in (torch.float32, torch.float64) or (
        is_whole and any(isinstance(number, torch.SymInt) for number in numbers)
    ):
        return NotImplemented
    places = torch.arange(math.ceil((end - start) / step), dtype=torch.int64)
    return (start + places.to(torch.float64) * step).to(dtype)


@decomposition("aten::arange.start", overrides="torch's mapping computes the number of steps in float32")
def arange_from(start: Any, end: Any, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    """start, start + 1, start + 2, ... up to ``end``.

    arange.start(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None,
    bool? pin_memory=None) -> Tensor
    """
    return arange(start, end, dtype=dtype)
