"""``index_put`` with int32 indices, and with masks beside other indices or slices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = (
    "torch's mapping passes int32 indices to ScatterND, and refuses masks beside others; other calls keep that mapping"
)


def _put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    dtypes = {index.dtype for index in indices if index is not None}
    if torch.int32 not in dtypes and not (torch.bool in dtypes and len(indices) > 1):
        return NotImplemented
    wide: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype == torch.bool and len(indices) > 1:
            wide += index.nonzero().unbind(1)
        else:
            wide.append(index.to(torch.int64) if index is not None and index.dtype == torch.int32 else index)
    return torch.ops.aten.index_put.default(self, wide, values, accumulate)


@decomposition("aten::index_put", overrides=_WHY)
def index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """``self`` with ``values`` written or added at the indexed positions.

    index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor
    """
    return _put(self, indices, values, accumulate)


@decomposition("aten::_unsafe_index_put", overrides=_WHY)
def unsafe_index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """``index_put`` without a bounds check.

    _unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor
    """
    return _put(self, indices, values, accumulate)
