"""Splitting a dynamic dimension into parts, or into as many as a tensor says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.tensor_split")
@rewrite("torch.Tensor.tensor_split")
def tensor_split(
    original: Callable[..., Any], input: Tensor, indices_or_sections: Any = None, dim: int = 0, **numbers: Any
) -> Any:
    """The parts along a dynamic ``dim``, or as many as a tensor of rank 0 says.

    tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections,
    int dim=0) -> Tensor(a)[]

    A number of parts of a constant size, and positions, are left to torch. The tensor of rank 0 must be a constant of
    the model, because a graph has a fixed number of outputs.
    """
    if type(indices_or_sections) is int and isinstance(input.shape[dim], torch.SymInt):
        return _in_parts(input, indices_or_sections, dim)
    if isinstance(indices_or_sections, Tensor) and indices_or_sections.dim() == 0:
        return original(input, int(indices_or_sections), dim)
    return NotImplemented


def _in_parts(input: Tensor, parts: int, dim: int) -> tuple[Tensor, ...]:
    """The first parts are one longer if the size is no multiple of ``parts``; torch makes the remainder constant."""
    least, longer = input.shape[dim] // parts, input.shape[dim] % parts
    starts = [number * least + torch.sym_min(number, longer) for number in range(parts + 1)]
    return tuple(input.narrow(dim, start, stop - start) for start, stop in itertools.pairwise(starts))
