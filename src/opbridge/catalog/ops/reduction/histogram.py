"""Histograms, as ONNX nodes or as custom nodes with kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, kernel_translation, rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Histogram", "histogram.h")
kernel_for("opbridge::HistC", "histogram.h")


def _searched(values: Tensor, edges: Tensor) -> Tensor:
    """The bin of each value between the first edge and the last."""
    return (torch.searchsorted(edges, values, right=True) - 1).clamp(0, edges.shape[0] - 2)


def _computed(values: Tensor, edges: Tensor) -> Tensor:
    """The bin of each value for equal bins: computed, then corrected by one from the rounded edges, as in PyTorch."""
    bins = edges.shape[0] - 1
    low, high = edges[0], edges[-1]
    is_inside = (values >= low) & (values <= high)
    place = (torch.where(is_inside, values, low) - low) * bins / (high - low)
    place = place.to(torch.int64).clamp(0, bins - 1)
    is_below, is_above = values < edges[place], values >= edges[place + 1]
    return (place - is_below.to(torch.int64) + is_above.to(torch.int64)).clamp(0, bins - 1)


def _counted(
    self: Tensor,
    edges: Tensor,
    weight: Tensor | None,
    density: bool,
    find: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The weight in each bin; the last bin includes its right edge, and NaN is ignored."""
    values = self.reshape(-1)
    bins = edges.shape[0] - 1
    place = find(values, edges)
    is_inside = (values >= edges[0]) & (values <= edges[-1])
    weights = torch.ones_like(values) if weight is None else weight.reshape(-1)
    counts = torch.zeros(bins, dtype=values.dtype).scatter_add(0, place, torch.where(is_inside, weights, 0))
    return counts / (counts.sum() * torch.diff(edges)) if density else counts


@decomposition("aten::histogram.bins_tensor")
def histogram_of_edges(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """The weight in each bin between the given edges.

    histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)
    """
    return _counted(self, bins, weight, density, _searched), bins.clone()


def equal_edges(values: Tensor, bins: int, range: Sequence[float] | Tensor | None) -> Tensor:
    """The edges of equal bins from the smallest value to the largest, or over a given range."""
    steps = torch.arange(bins + 1, dtype=values.dtype)
    if isinstance(range, Tensor):
        low, high = range[0], range[1]
    elif range is not None:
        low, high = (torch.full((), end, dtype=values.dtype) for end in range)
    elif values.numel() == 0:
        low, high = torch.zeros((), dtype=values.dtype), torch.ones((), dtype=values.dtype)
    else:
        low, high = torch.aminmax(values)
    # A single value is in the middle of a bin of width 1.
    margin = torch.where(low == high, 0.5, 0.0).to(values.dtype)
    low, high = low - margin, high + margin
    step = (high - low) / bins
    # The edges are computed from both ends, as in PyTorch's linspace, so that the last edge is exact.
    return torch.where(steps < (bins + 1) // 2, low + steps * step, high - (bins - steps) * step)


@decomposition("aten::histogram.bin_ct")
def histogram_of_count(
    self: Tensor,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """The weight in each of equal bins, from the smallest element to the largest or in a given range.

    histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)
    """
    edges = equal_edges(self, bins, range)
    return _counted(self, edges, weight, density, _computed), edges


@rewrite("torch.histogram")
@rewrite("torch.Tensor.histogram")
def histogram_of_dynamic_sizes(
    original: Callable[..., Any], input: Tensor, bins: int | Tensor = 100, **options: Any
) -> Any:
    """A histogram of a tensor with dynamic sizes, for which torch's operator has no shape function.

    histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)
    histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)
    """
    tensors = [value for value in (input, bins, options.get("weight")) if isinstance(value, Tensor)]
    if have_fixed_sizes(*tensors):
        return NotImplemented
    counted: Callable[..., Any] = histogram_of_edges if isinstance(bins, Tensor) else histogram_of_count
    return torch.return_types.histogram(counted(input, bins, **options))


@decomposition(
    "aten::histc", overrides="torch's mapping does not support equal bounds, and compares each element with each edge"
)
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of equal bins from ``min`` to ``max``; equal bounds mean the range of the data.

    histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor

    The bin is computed instead of searched, with the same rounding as in PyTorch's formula.
    """
    if min == max:
        return _counted_between(self, bins)
    return _counted_between(self, bins, *(torch.full((), bound, dtype=self.dtype) for bound in (min, max)))


def _counted_between(self: Tensor, bins: int, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    values = self.reshape(-1)
    if low is None or high is None:
        if values.numel() == 0:
            return torch.zeros(bins, dtype=values.dtype)
        low, high = torch.aminmax(values)
        # A single value is in the middle of an interval of length 2.
        margin = torch.where(low == high, 1.0, 0.0).to(values.dtype)
        low, high = low - margin, high + margin
    is_inside = (values >= low) & (values <= high)
    place = ((torch.where(is_inside, values, low) - low) * bins / (high - low)).to(torch.int64)
    counts = torch.zeros(bins, dtype=values.dtype)
    return counts.scatter_add(0, place.clamp(0, bins - 1), is_inside.to(values.dtype))


@kernel_translation("aten::histogram.bin_ct")
def histogram_with_kernel(
    self: Any, bins: int = 100, *, range: Sequence[float] | None = None, weight: Any = None, density: bool = False
) -> Any:
    """``histogram.bin_ct`` as a custom node with a kernel.

    histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)
    """
    bounds = None if range is None else _bounds(self, range)
    return custom_node("opbridge::Histogram", self, weight, bounds, num_outputs=2, bins=bins, density=density)


@body_for("opbridge::Histogram")
def body(
    x: Tensor, weight: Tensor | None = None, bounds: Tensor | None = None, *, bins: int, density: int
) -> tuple[Tensor, Tensor]:
    """The nodes of the mapping without a kernel."""
    edges = equal_edges(x, bins, bounds)
    return _counted(x, edges, weight, bool(density), _computed), edges


@kernel_translation("aten::histc")
def histc_with_kernel(self: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """``histc`` as a custom node with a kernel.

    histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor
    """
    return custom_node("opbridge::HistC", self, None if min == max else _bounds(self, (min, max)), bins=bins)


@body_for("opbridge::HistC")
def histc_body(x: Tensor, bounds: Tensor | None = None, *, bins: int) -> Tensor:
    """The nodes of the mapping without a kernel."""
    return _counted_between(x, bins) if bounds is None else _counted_between(x, bins, bounds[0], bounds[1])


def _bounds(like: Any, bounds: Sequence[float]) -> Any:
    return op.CastLike(op.Constant(value=ir.tensor(np.asarray(bounds, np.float64))), like)
