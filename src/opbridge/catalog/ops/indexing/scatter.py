"""Elements, numbers and sums at indexed positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition

_WHY = "ScatterElements does not support rank 0 or a source larger than the index"


@decomposition("aten::scatter.src", overrides=_WHY)
def scatter_source(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """``self`` with elements of ``src`` at the positions selected by ``index`` along ``dim``.

    scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
    """
    if self.dim() == 0:
        return src.reshape(()).clone()
    source = _cut(src, index)
    return NotImplemented if source is src else self.scatter(dim, index, source)


@decomposition("aten::scatter.value", overrides="ScatterElements does not support rank 0")
def scatter_value(self: Tensor, dim: int, index: Tensor, value: float) -> Any:
    """``self`` with a number at the positions selected by ``index`` along ``dim``.

    scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor
    """
    return torch.full_like(self, value) if self.dim() == 0 else NotImplemented


@decomposition("aten::scatter_add", overrides=_WHY)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """``self`` with the elements of ``src`` added at the positions in ``index``.

    scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
    """
    if self.dim() == 0:
        return self.reshape(1).scatter_add(0, index.reshape(-1), src.reshape(-1)).reshape(())
    source = _cut(src, index)
    return NotImplemented if source is src else self.scatter_add(dim, index, source)


def _cut(source: Tensor, index: Tensor) -> Tensor:
    """The part of the source that the index selects positions for; the source itself if they have the same sizes."""
    for axis, size in enumerate(index.shape):
        if not statically_known_true(source.shape[axis] == size):
            source = source.narrow(axis, 0, size)
    return source
