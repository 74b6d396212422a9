"""Operators whose Python function is right and whose kernel, of the same name in fault_kernels/, is wrong."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import opbridge

__all__ = ["large_inputs", "nan_lost", "odd_sizes", "signed_zero", "size_one", "size_zero", "some_runs"]


@opbridge.operator("faults::odd_sizes")
def odd_sizes(x: Tensor) -> Tensor:
    """2x + 1."""
    return 2 * x + 1


@opbridge.operator("faults::some_runs")
def some_runs(x: Tensor) -> Tensor:
    """2x + 1."""
    return 2 * x + 1


@opbridge.operator("faults::large_inputs")
def large_inputs(x: Tensor) -> Tensor:
    """The logistic function."""
    return torch.sigmoid(x)


@opbridge.operator("faults::nan_lost")
def nan_lost(x: Tensor) -> Tensor:
    """The larger of x and 0; NaN stays NaN."""
    return torch.relu(x)


@opbridge.operator("faults::signed_zero")
def signed_zero(x: Tensor) -> Tensor:
    """3x."""
    return 3 * x


@opbridge.operator("faults::size_one")
def size_one(x: Tensor) -> Tensor:
    """Each row less its mean."""
    return x - x.mean(-1, keepdim=True)


@opbridge.operator("faults::size_zero")
def size_zero(x: Tensor) -> Tensor:
    """The product of each row."""
    return x.prod(-1)


for _operator in (large_inputs, nan_lost, odd_sizes, signed_zero, size_one, size_zero, some_runs):
    _operator.kernel(Path(__file__).parent / "fault_kernels" / f"{_operator.__name__}.h")
