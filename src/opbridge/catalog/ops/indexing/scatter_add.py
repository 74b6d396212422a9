"""Elements added at the places that an index names."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::scatter_add",
    overrides="PyTorch takes rank 0 for a row of one, and a source larger than the index; ScatterElements does not",
)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """A tensor with every element of ``src`` added that ``index`` has a place for.

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
