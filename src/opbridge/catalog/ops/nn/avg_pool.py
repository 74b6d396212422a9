"""Average pools in ceil mode or with a divisor of one's own, by ONNX AveragePool of a padded tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.formulas.pooling import pooled_length
from opbridge.catalog.formulas.windows import window_sums

_WHY = "torch's mapping ignores divisor_override, and engines differ in what they divide by in ceil mode"


def _for_axes(value: Sequence[int] | int, rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _elements(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], sizes: list[int], whole: bool
) -> Any:
    """How many elements each window averages, those of the padding too where ``whole``."""
    counts: Any = 1
    for axis, size in enumerate(sizes):
        length = x.shape[axis - len(sizes)]
        start = torch.arange(size) * stride[axis] - padding[axis]
        stop = (start + kernel[axis]).clamp_max(length + padding[axis])
        own = stop - start if whole else stop.clamp_max(length) - start.clamp_min(0)
        counts = counts * own.reshape([-1] + [1] * (len(sizes) - 1 - axis))
    return counts


def _pooled(
    operator: Callable[..., Tensor],
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    rank = {"avg_pool2d": 2, "avg_pool3d": 3}[operator.__name__]
    # ONNX Runtime's AveragePool is for float32, and halves get casts around it.
    if not ceil_mode and divisor_override is None and x.is_floating_point() and x.dtype != torch.float64:
        return NotImplemented
    kernel = _for_axes(kernel_size, rank)
    steps, edge = _for_axes(stride, rank) if stride else kernel, _for_axes(padding, rank)
    sizes = [
        pooled_length(x.shape[axis - rank], kernel[axis], steps[axis], edge[axis], ceil_mode) for axis in range(rank)
    ]
    working = x.double() if not x.is_floating_point() else x.float() if x.dtype.itemsize < 4 else x
    # A window in ceil mode reaches at most a step beyond the padding.
    pads = [p for axis in reversed(range(rank)) for p in (edge[axis], edge[axis] + (steps[axis] - 1) * ceil_mode)]
    padded = torch.nn.functional.pad(working, pads)
    if working.dtype == torch.float64:
        total = window_sums(padded, kernel, steps)
    else:
        total = operator(padded, kernel, steps) * math.prod(kernel)
    for axis, size in enumerate(sizes):
        total = total.narrow(axis - rank, 0, size)
    divisor = divisor_override or _elements(x, kernel, steps, edge, sizes, count_include_pad)
    if x.is_floating_point():
        return (total / divisor).to(x.dtype)
    return torch.div(total.round().to(x.dtype), divisor, rounding_mode="trunc")


@decomposition("aten::avg_pool1d", overrides=_WHY)
def avg_pool1d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of an (.., L) tensor.

    avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False,
    bool count_include_pad=True) -> Tensor
    """
    steps = [1, *_for_axes(stride, 1)] if stride else []
    kernel, edge = [1, *_for_axes(kernel_size, 1)], [0, *_for_axes(padding, 1)]
    return torch.ops.aten.avg_pool2d(self.unsqueeze(-2), kernel, steps, edge, ceil_mode, count_include_pad).squeeze(-2)


@decomposition("aten::avg_pool2d", overrides=_WHY)
def avg_pool2d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an (.., H, W) tensor; integers are divided towards 0.

    avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False,
    bool count_include_pad=True, int? divisor_override=None) -> Tensor
    """
    operator = torch.ops.aten.avg_pool2d
    return _pooled(operator, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@decomposition("aten::avg_pool3d", overrides=_WHY)
def avg_pool3d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of an (.., D, H, W) tensor; integers are divided towards 0.

    avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False,
    bool count_include_pad=True, int? divisor_override=None) -> Tensor
    """
    operator = torch.ops.aten.avg_pool3d
    return _pooled(operator, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
