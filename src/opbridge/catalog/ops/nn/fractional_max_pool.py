"""Max pooling with random window positions (Graham, "Fractional max-pooling", 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition, rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes
from opbridge.catalog.formulas.pooling import first_largest


def _starts(samples: Tensor, length: int, outputs: int, kernel: int) -> Tensor:
    """The starts of the windows along an axis, per image and channel: (N, C, outputs). The last ends with the axis."""
    last = (torch.zeros_like(samples).to(torch.int64) + (length - kernel)).unsqueeze(-1)
    if outputs == 1:
        return last
    step = (length - kernel) / (outputs - 1)
    number = torch.arange(outputs - 1).to(samples.dtype)
    drawn = samples.unsqueeze(-1)
    earlier = ((number + drawn) * step).to(torch.int64) - (drawn * step).to(torch.int64)
    return torch.cat([earlier, last], -1)


def _along(x: Tensor, starts: Tensor, axis: int, kernel: int) -> Tensor:
    """The elements of the windows along ``axis`` of (N, C, ..), which moves to the end: (.., outputs, kernel)."""
    rows = x.movedim(axis, -1)
    place = (starts.unsqueeze(-1) + torch.arange(kernel)).flatten(-2)
    place = place.reshape([*place.shape[:2], *[1] * (rows.dim() - 3), place.shape[-1]])
    taken = rows.gather(-1, place.expand([*rows.shape[:-1], place.shape[-1]]))
    return taken.reshape([*taken.shape[:-1], starts.shape[-1], kernel])


def _pooled(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor, drawn: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Pool the last axis first, so that of equal elements the first in row-major order is chosen."""
    rank = len(output_size)
    if any(isinstance(size, int) and size == 0 for size in self.shape):
        # Engines refuse to reshape an empty tensor with dynamic sizes.
        empty = self.new_zeros([*self.shape[:-rank], *output_size])
        return empty, empty.to(torch.int64)
    x = self if self.dim() == rank + 2 else self.unsqueeze(0)
    sizes, step = x.shape[2:], 1
    place = torch.zeros_like(x, dtype=torch.int64)
    for axis in reversed(range(rank)):
        kernel, outputs = kernel_size[axis], output_size[axis]
        starts = _starts(random_samples[..., drawn[axis]], sizes[axis], outputs, kernel)
        value, position = first_largest(_along(x, starts, axis + 2, kernel))
        first = starts.reshape([*starts.shape[:2], *[1] * (rank - 1), outputs, 1])
        own = _along(place, starts, axis + 2, kernel).gather(-1, position) + (position + first) * step
        x, place = value.squeeze(-1).movedim(-1, axis + 2), own.squeeze(-1).movedim(-1, axis + 2)
        step = step * sizes[axis]
    return (x, place) if self.dim() == rank + 2 else (x.squeeze(0), place.squeeze(0))


@decomposition("aten::fractional_max_pool2d")
def fractional_max_pool2d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., C, H, W) tensor, and its index in the flattened H and W.

    fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size,
    Tensor random_samples) -> (Tensor, Tensor)

    ``random_samples`` (N, C, 2) are numbers in [0, 1) for W and H.
    """
    return _pooled(self, kernel_size, output_size, random_samples, (1, 0))


@decomposition("aten::fractional_max_pool3d")
def fractional_max_pool3d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest element of each window of an (.., C, D, H, W) tensor, and its index in the flattened D, H and W.

    fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size,
    Tensor random_samples) -> (Tensor, Tensor)

    ``random_samples`` (N, C, 3) are numbers in [0, 1) for D, H and W.
    """
    return _pooled(self, kernel_size, output_size, random_samples, (0, 1, 2))


@rewrite("torch.nn.functional.fractional_max_pool3d_with_indices")
def pooled_volumes_of_dynamic_sizes(
    original: Callable[..., Any],
    input: Tensor,
    kernel_size: int | Sequence[int],
    output_size: int | Sequence[int] | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Keep dynamic sizes dynamic; the shape function of torch's operator makes them constant."""
    if have_fixed_sizes(input) or (output_size is None and output_ratio is None):
        return NotImplemented
    if output_size is None:
        output_size = [int(size * ratio) for size, ratio in zip(input.shape[-3:], _three(output_ratio), strict=True)]
    if _random_samples is None:
        images = 1 if input.dim() == 4 else input.shape[0]
        _random_samples = torch.rand(images, input.shape[-4], 3, dtype=input.dtype)
    return fractional_max_pool3d(input, _three(kernel_size), _three(output_size), _random_samples)


def _three(numbers: Any) -> Sequence[Any]:
    return [numbers] * 3 if isinstance(numbers, int | float) else numbers
