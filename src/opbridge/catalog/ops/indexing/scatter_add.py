"""Addition of elements at indexed positions."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::scatter_add",
    overrides="ScatterElements does not support rank 0 or a source larger than the index",
)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """``self`` with the elements of ``src`` added at the positions in ``index``.

    scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor
    """
    if self.dim() == 0:
        return self.reshape(1).scatter_add(0, index.reshape(-1), src.reshape(-1)).reshape(())
    larger = [
        axis
        for axis, (own, other) in enumerate(zip(src.shape, index.shape, strict=True))
        if not statically_known_true(own == other)
    ]
    if not larger:
        return NotImplemented
    for axis in larger:
        src = src.narrow(axis, 0, index.shape[axis])
    return self.scatter_add(dim, index, src)
