"""A tensor in equal parts."""

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
    """Keep a dynamic dimension dynamic that is cut in two, or in parts that come out even.

    chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]

    torch rounds the size of a part up, asks how many such parts there are, and freezes the size on the answer.
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
    """Cut as ``chunk`` does: the two differ in what autograd allows alone.

    unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]

    Captured as it is, it leaves a call whose number of results no translation knows.
    """
    pieces = chunk(original, input, chunks, dim)
    return torch.chunk(input, chunks, dim) if pieces is NotImplemented else pieces
