"""Pieces of a tensor between places that a tensor names."""

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
    """The pieces along ``dim`` before, between and after the places in a vector, which may differ at each run.

    tensor_split.tensor_indices_or_sections(Tensor(a -> *) self, Tensor tensor_indices_or_sections,
    int dim=0) -> Tensor(a)[]

    Numbers stay with torch. A tensor of rank 0 says how many pieces there are: a graph has a fixed number of results,
    so it has to be a constant of the model.
    """
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
