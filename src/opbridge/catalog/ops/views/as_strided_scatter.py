"""Writing to the elements of a strided view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition
from opbridge.catalog.ops.views.as_strided import places_in_memory


@decomposition("aten::as_strided_scatter")
def as_strided_scatter(
    self: Tensor, src: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: int | None = None
) -> Tensor:
    """``self`` with the elements of ``self.as_strided(size, stride, storage_offset)`` replaced by ``src``.

    as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor

    The tensor is assumed to be contiguous, like every tensor of an ONNX model.
    """
    places = places_in_memory(size, stride, storage_offset or 0)
    flat = self.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1))
    return flat.reshape(self.shape)
