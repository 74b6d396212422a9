"""Adaptive pooling: the windows differ in length, so their elements are gathered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.pooling import first_largest
from opbridge.catalog.formulas.series import in_working_precision
from opbridge.torch_graph.internals import symbols_of


def _bounds(length: Any, outputs: int) -> tuple[Tensor, Tensor]:
    """The windows' limits: window i extends from floor(i length / outputs) to ceil((i + 1) length / outputs)."""
    number = torch.arange(outputs)
    return number * length // outputs, ((number + 1) * length + outputs - 1) // outputs


def _taken(x: Tensor, axis: int, place: Tensor) -> Tensor:
    """The elements at ``place`` (windows, elements of a window); two axes replace one."""
    taken = x.index_select(axis, place.reshape(-1))
    return taken.reshape([*x.shape[:axis], *place.shape, *x.shape[axis + 1 :]])


def _means(x: Tensor, axis: int, outputs: int) -> Tensor:
    """The mean of each window along ``axis``; the lengths of the windows differ by at most one."""
    length = x.shape[axis]
    if isinstance(outputs, int) and outputs == 1:
        return x.mean(axis, keepdim=True)
    if isinstance(length, int) and length % outputs == 0:
        return x.reshape([*x.shape[:axis], outputs, length // outputs, *x.shape[axis + 1 :]]).mean(axis + 1)
    start, stop = _bounds(length, outputs)
    least = (length + outputs - 1) // outputs
    total = _taken(x, axis, start.unsqueeze(-1) + torch.arange(least)).sum(axis + 1)
    last = x.index_select(axis, stop - 1)
    shape = [-1] + [1] * (x.dim() - 1 - axis)
    total = torch.where((stop - start > least).reshape(shape), total + last, total)
    return total / (stop - start).to(x.dtype).reshape(shape)


@in_working_precision
def _averaged(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """Average over one axis after the other."""
    count = len(output_size)
    if isinstance(x.numel(), int) and x.numel() == 0:
        # Engines differ in the sum of no elements.
        return x.new_zeros([*x.shape[:-count], *output_size])
    for axis, size in zip(range(x.dim() - count, x.dim()), output_size, strict=True):
        x = _means(x, axis, size)
    return x


@decomposition("aten::_adaptive_avg_pool2d", overrides="torch decomposes it into one sum per element of a window")
def adaptive_avg_pool2d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean of each window of an (.., H, W) tensor.

    _adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor
    """
    return _averaged(self, output_size)


@decomposition("aten::_adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean of each window of an (.., D, H, W) tensor.

    _adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor
    """
    return _averaged(self, output_size)


def _places(x: Tensor, axis: int, outputs: int) -> Tensor:
    """The elements of each window; a shorter window repeats its last element, which does not change the maximum."""
    start, stop = _bounds(x.shape[axis], outputs)
    if isinstance(x.shape[axis], int) and x.shape[axis] % outputs == 0:
        return start.unsqueeze(-1) + torch.arange(x.shape[axis] // outputs)
    longest = torch.arange((x.shape[axis] + outputs - 1) // outputs + 1)
    return torch.minimum(start.unsqueeze(-1) + longest, stop.unsqueeze(-1) - 1)


def _maxima(x: Tensor, output_size: Sequence[int]) -> Tensor:
    for axis, outputs in zip(range(x.dim() - len(output_size), x.dim()), output_size, strict=True):
        x = _taken(x, axis, _places(x, axis, outputs)).amax(axis + 1)
    return x


def _largest(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its index in the flattened axes; of equal elements the first.

    The index takes more work than the element, and many models do not use it, so the two are computed separately.
    """
    axes = range(self.dim() - len(output_size), self.dim())
    value = _maxima(self, output_size)
    x, step = self, 1
    place: Any = None
    for axis, outputs in reversed(list(zip(axes, output_size, strict=True))):
        inside = _places(x, axis, outputs)
        x, position = first_largest(_taken(x, axis, inside), axis + 1)
        shape = [-1] + [1] * (self.dim() - axis)
        found = torch.minimum(position + inside[:, :1].reshape(shape), inside[:, -1:].reshape(shape)).squeeze(axis + 1)
        x, place = x.squeeze(axis + 1), found * step + (0 if place is None else place.gather(axis, found))
        step = step * self.shape[axis]
    return value, place


@decomposition("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., H, W) tensor, and its index in the flattened H and W.

    adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)
    """
    return _largest(self, output_size)


@decomposition("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., D, H, W) tensor, and its index in the flattened D, H and W.

    adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)
    """
    return _largest(self, output_size)


def _sizes(input: Tensor, output_size: Any, rank: int) -> list[Any]:
    """The number of windows on each axis, given as a number, or as a list in which None stands for the size."""
    sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * rank
    return [own if size is None else size for own, size in zip(input.shape[-rank:], sizes, strict=True)]


def _of_dynamic_size(rank: int) -> Callable[..., Any]:
    @rewrite(f"torch.nn.functional.adaptive_max_pool{rank}d")
    def adaptive_max_pool(
        original: Callable[..., Any], input: Tensor, output_size: Any, return_indices: bool = False
    ) -> Any:
        sizes = _sizes(input, output_size, rank)
        if return_indices or not any(isinstance(size, torch.SymInt) for size in sizes):
            return NotImplemented
        return _maxima(input, sizes)

    adaptive_max_pool.__name__ = adaptive_max_pool.__qualname__ = f"dynamic_max_pool{rank}d"
    adaptive_max_pool.__doc__ = f"""The largest element of each window; torch would make the number of windows constant.

    adaptive_max_pool{rank}d(Tensor self, int[{rank}] output_size) -> (Tensor, Tensor)
    """
    return adaptive_max_pool


def _of_data_dependent_size(rank: int) -> Callable[..., Any]:
    @rewrite(f"torch.nn.functional.adaptive_avg_pool{rank}d")
    def adaptive_avg_pool(original: Callable[..., Any], input: Tensor, output_size: Any) -> Any:
        return _averaged(input, _sizes(input, output_size, rank)) if symbols_of([input]) else NotImplemented

    adaptive_avg_pool.__name__ = adaptive_avg_pool.__qualname__ = f"data_dependent_avg_pool{rank}d"
    adaptive_avg_pool.__doc__ = f"""The mean of each window; torch's operator asks for the sizes of the images.

    adaptive_avg_pool{rank}d(Tensor self, SymInt[{rank}] output_size) -> Tensor
    """
    return adaptive_avg_pool


dynamic_max_pool1d, dynamic_max_pool2d, dynamic_max_pool3d = map(_of_dynamic_size, (1, 2, 3))
data_dependent_avg_pool1d, data_dependent_avg_pool2d, data_dependent_avg_pool3d = map(
    _of_data_dependent_size, (1, 2, 3)
)
