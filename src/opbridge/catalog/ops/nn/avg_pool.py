"""Average pooling in ceil mode, with a custom divisor or dynamic padding, as ONNX AveragePool over a padded tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.pooling import is_always, over_dynamic_windows, pooled_length
from opbridge.catalog.formulas.windows import window_sums

_WHY = "torch's mapping ignores divisor_override, and engines divide by different counts in ceil mode"


def _for_axes(value: Sequence[int] | int, rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _elements(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], sizes: list[int], whole: bool
) -> Any:
    """The number of elements that each window averages, padding included if ``whole`` is set."""
    counts: Any = 1
    for axis, size in enumerate(sizes):
        length = x.shape[axis - len(sizes)]
        start = torch.arange(size) * stride[axis] - padding[axis]
        stop = (start + kernel[axis]).clamp_max(length + padding[axis])
        own = stop - start if whole else stop.clamp_max(length) - start.clamp_min(0)
        counts = counts * own.reshape([-1] + [1] * (len(sizes) - 1 - axis))
    return counts


def _ends_with_a_window(length: int, kernel: int, stride: int, padding: int) -> bool:
    """Whether ceil mode makes no difference: the last window ends where the padded input ends."""
    return isinstance(length, int) and (length + 2 * padding - kernel) % stride == 0


def _pooled(
    rank: int,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    # ONNX Runtime has AveragePool for float32 only; float16 and bfloat16 get casts around it.
    is_node = divisor_override is None and x.is_floating_point() and x.dtype != torch.float64
    if is_node and not ceil_mode:
        return NotImplemented
    kernel = _for_axes(kernel_size, rank)
    steps, edge = _for_axes(stride, rank) if stride else kernel, _for_axes(padding, rank)
    operator = getattr(torch.ops.aten, f"avg_pool{rank}d")
    if is_node:
        if all(
            _ends_with_a_window(x.shape[axis - rank], kernel[axis], steps[axis], edge[axis]) for axis in range(rank)
        ):
            return operator(x, kernel, steps, edge, False, count_include_pad)
        # Without padding a window is divided by the number of its own elements.
        if not any(edge) and all(step <= size for step, size in zip(steps, kernel, strict=True)):
            return operator(x, kernel, steps, edge, True, False) if count_include_pad else NotImplemented
    sizes = [
        pooled_length(x.shape[axis - rank], kernel[axis], steps[axis], edge[axis], ceil_mode) for axis in range(rank)
    ]
    working = x.double() if not x.is_floating_point() else x.float() if x.dtype.itemsize < 4 else x
    # In ceil mode a window extends beyond the padding by less than one stride.
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
    """The mean of each window of a (.., L) tensor.

    avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False,
    bool count_include_pad=True) -> Tensor
    """
    steps = [1, *_for_axes(stride, 1)] if stride else []
    kernel, edge = [1, *_for_axes(kernel_size, 1)], [0, *_for_axes(padding, 1)]
    return torch.ops.aten.avg_pool2d(self.unsqueeze(-2), kernel, steps, edge, ceil_mode, count_include_pad).squeeze(-2)


def _operator(rank: int, axes: str) -> Callable[..., Tensor]:
    name = f"avg_pool{rank}d"

    @decomposition(f"aten::{name}", overrides=_WHY)
    def avg_pool(
        self: Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        return _pooled(rank, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    avg_pool.__name__ = avg_pool.__qualname__ = name
    avg_pool.__doc__ = f"""The mean of each window of a (.., {axes}) tensor; integer results are rounded towards 0.

    {name}(Tensor self, int[{rank}] kernel_size, int[{rank}] stride=[], int[{rank}] padding=0, bool ceil_mode=False,
    bool count_include_pad=True, int? divisor_override=None) -> Tensor
    """
    return avg_pool


avg_pool2d, avg_pool3d = _operator(2, "H, W"), _operator(3, "D, H, W")


@rewrite("torch.nn.functional.avg_pool1d")
@rewrite("torch.nn.functional.avg_pool2d")
@rewrite("torch.nn.functional.avg_pool3d")
def of_padded(
    original: Callable[..., Tensor],
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *divisor: Any,
    **options: Any,
) -> Any:
    """The same with dynamic sizes of windows, or of the padding, which the operator makes constant."""
    rank = int(original.__name__[-2])
    if is_always(padding, 0) and not ceil_mode and not divisor and not options:
        windows = over_dynamic_windows(input, rank, kernel_size, stride, Tensor.mean)
        if windows is not None:
            return windows
    edges = list(padding) if isinstance(padding, (list, tuple)) else [padding]
    if not any(isinstance(edge, torch.SymInt) for edge in edges) or ceil_mode or not count_include_pad:
        return NotImplemented
    edges = edges * rank if len(edges) == 1 else edges
    padded = torch.nn.functional.pad(input, [edge for edge in reversed(edges) for _ in range(2)])
    return original(padded, kernel_size, kernel_size if stride is None else stride, 0, False, True, *divisor, **options)
