"""Splitting a tensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::split.Tensor",
    overrides="torch.onnx maps a dynamic split size to a sequence, and then fails to unpack it",
)
def split(self: Tensor, split_size: int, dim: int = 0) -> Any:
    """Parts of ``split_size`` along ``dim``; the last one may be smaller.

    split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]

    If both sizes are fixed, torch's mapping is kept.
    """
    size = self.shape[dim]
    if isinstance(size, int) and isinstance(split_size, int):
        return NotImplemented
    starts = [i * split_size for i in range(max(int((size + split_size - 1) // split_size), 1))]
    pieces = [self.narrow(dim, start, split_size) for start in starts[:-1]]
    return [*pieces, self.narrow(dim, starts[-1], size - starts[-1])]
