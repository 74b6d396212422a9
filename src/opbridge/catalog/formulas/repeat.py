"""A loop that stays one node of the graph, for the function bodies of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["is_empty", "repeat", "repeat_while", "taken_along"]


def repeat(
    count: int | torch.SymInt | Tensor, step: Callable[..., Sequence[Tensor]], *start: Tensor
) -> tuple[Any, ...]:
    """The values after ``count`` calls of ``step``, starting from ``start``, as one ONNX ``Loop``.

    Args:
        count: The number of steps: an int, a symbolic size, or a tensor of rank 0.
        step: A function of the step's number, an int64 tensor of rank 0 that starts at 0, and of the values. It returns
            values of the same shapes and dtypes. It may use other tensors of the enclosing function, but not sizes,
            which torch.onnx does not pass to the loop.
        start: The values before the first step. Their sizes of 1 do not broadcast in ``step``, and ``squeeze`` does not
            remove them, because torch treats a size of 1 as any size.
    """
    if (isinstance(count, int) and count == 0) or all(is_empty(value) for value in start):
        return start
    limit = count if isinstance(count, Tensor) else torch.full((), count, dtype=torch.int64)

    def unfinished(number: Tensor, *values: Tensor) -> Tensor:
        return number < limit

    def once(number: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        return number + 1, *map(_laid_out, step(number, *values))

    zero = torch.zeros((), dtype=torch.int64)
    _, *results = torch.while_loop(unfinished, once, (zero, *map(_laid_out, start)))
    return tuple(results)


def repeat_while(step: Callable[..., Sequence[Tensor]], *start: Tensor) -> tuple[Any, ...]:
    """Like :func:`repeat`, but ``step`` returns a bool of rank 0 before the values: whether to continue."""
    if all(is_empty(value) for value in start):
        return start

    def unfinished(number: Tensor, goes_on: Tensor, *values: Tensor) -> Tensor:
        return goes_on.clone()

    def once(number: Tensor, goes_on: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        goes_on, *following = step(number, *values)
        return number + 1, goes_on, *map(_laid_out, following)

    number, yes = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
    _, _, *results = torch.while_loop(unfinished, once, (number, yes, *map(_laid_out, start)))
    return tuple(results)


def is_empty(value: Tensor) -> bool:
    """Whether a tensor is known to have no elements when the graph is made.

    ONNX Runtime 1.31 reduces a tensor without elements to a wrong shape.
    """
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _laid_out(value: Tensor) -> Tensor:
    # torch.while_loop requires new tensors in each step, with the same strides.
    return value.clone(memory_format=torch.contiguous_format)


def taken_along(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """``torch.take_along_dim`` for a loop's step; torch's function makes dynamic sizes constant."""
    return x.gather(dim, index + torch.zeros_like(x.narrow(dim, 0, 1), dtype=torch.int64))
