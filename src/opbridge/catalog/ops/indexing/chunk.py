"""Splitting a tensor into equal parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import rewrite


@rewrite("torch.chunk")
@rewrite("torch.Tensor.chunk")
def chunk(original: Callable[..., Any], input: Tensor, chunks: int, dim: int = 0) -> Any:
    """Keep a dynamic dimension dynamic if it is split in two or into equal parts.

    chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]

    torch rounds the size of a part up and branches on the number of such parts, which makes the size constant.
    """
    size = input.shape[dim]
    if isinstance(size, int) or not (chunks == 2 or statically_known_true(size % chunks == 0)):
        return NotImplemented
    torch._check(size >= chunks)
    part = (size + chunks - 1) // chunks
    starts = [i * part for i in range(chunks)]
    pieces = [torch.narrow(input, dim, start, part) for start in starts[:-1]]
    return (*pieces, torch.narrow(input, dim, starts[-1], size - starts[-1]))


@rewrite("torch.unsafe_chunk")
@rewrite("torch.Tensor.unsafe_chunk")
def unsafe_chunk(original: Callable[..., Any], input: Tensor, chunks: int, dim: int = 0) -> Any:
    """Split like ``chunk``; the two functions differ only in autograd.

    unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]

    Without this rewrite the graph would contain a call with an unknown number of results.
    """
    pieces = chunk(original, input, chunks, dim)
    return torch.chunk(input, chunks, dim) if pieces is NotImplemented else pieces
