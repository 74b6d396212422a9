"""Splitting a tensor at positions given as a tensor, or a dynamic dimension into parts."""

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
    """The parts along ``dim`` before, between and after the positions in a vector, which may differ in each run.

    tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections,
    int dim=0) -> Tensor(a)[]

    A number of parts of a constant size, and positions, are left to torch. A tensor of rank 0 is the number of parts;
    it must be a constant of the model, because a graph has a fixed number of outputs.
    """
    if type(indices_or_sections) is int and isinstance(input.shape[dim], torch.SymInt):
        return _in_parts(input, indices_or_sections, dim)
    if not isinstance(indices_or_sections, Tensor):
        return NotImplemented
    if indices_or_sections.dim() == 0:
        return original(input, int(indices_or_sections), dim)
    length = input.shape[dim]
    bounds = torch.where(indices_or_sections < 0, indices_or_sections + length, indices_or_sections)
    places = torch.arange(length)
    edges: list[Any] = [0, *bounds.unbind(), length]
    pieces = [(places >= start) & (places < end) for start, end in itertools.pairwise(edges)]
    return tuple(input.index_select(dim, torch.nonzero(piece).flatten()) for piece in pieces)


def _in_parts(input: Tensor, parts: int, dim: int) -> tuple[Tensor, ...]:
    """The first parts are one longer if the size is no multiple of ``parts``; torch makes the remainder constant."""
    least, longer = input.shape[dim] // parts, input.shape[dim] % parts
    starts = [number * least + torch.sym_min(number, longer) for number in range(parts + 1)]
    return tuple(input.narrow(dim, start, stop - start) for start, stop in itertools.pairwise(starts))
