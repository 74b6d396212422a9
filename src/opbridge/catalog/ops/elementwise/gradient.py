"""Numerical gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.gradient")
def gradient(
    original: Callable[..., Any],
    input: Tensor,
    *,
    spacing: Any = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> Any:
    """The slope at each element along each axis; dynamic sizes stay dynamic, unlike in torch's function.

    gradient.scalararray(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]

    Uneven spacings, given as tensors, are left to torch.
    """
    is_fixed = have_fixed_sizes(input)
    if is_fixed or any(isinstance(step, Tensor) for step in (spacing if isinstance(spacing, Sequence) else ())):
        return NotImplemented
    axes = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    steps = spacing if isinstance(spacing, Sequence) else [1 if spacing is None else spacing] * len(axes)
    return tuple(_slopes(input, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True))


def _slopes(x: Tensor, axis: int, step: float, edge_order: int) -> Tensor:
    """Central differences; at the edges, the slope of a polynomial of degree ``edge_order``."""
    size = x.shape[axis]

    def at(place: int) -> Tensor:
        return x.narrow(axis, place if place >= 0 else size + place, 1)

    inner = (x.narrow(axis, 2, size - 2) - x.narrow(axis, 0, size - 2)) / step / 2
    if edge_order == 1:
        first, last = at(1) - at(0), at(-1) - at(-2)
    else:
        first = -1.5 * at(0) + 2 * at(1) - 0.5 * at(2)
        last = 0.5 * at(-3) - 2 * at(-2) + 1.5 * at(-1)
    return torch.cat([first / step, inner, last / step], axis)
