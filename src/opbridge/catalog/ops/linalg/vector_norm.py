"""The infinity norms of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition(
    "aten::linalg_vector_norm",
    overrides="torch's mapping loses NaN for ord=inf and ord=-inf, and ignores keepdim over all axes",
)
def vector_norm(
    self: Tensor,
    ord: float = 2,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The largest magnitude for ``ord=inf``, the smallest for ``ord=-inf``; other norms are left to torch.

    linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor
    """
    if not math.isinf(ord):
        if keepdim and dim is None and self.dim() > 0:
            return torch.linalg.vector_norm(self, ord, list(range(self.dim())), keepdim, dtype=dtype)
        return NotImplemented
    magnitude = self.abs() if dtype is None else self.to(dtype).abs()
    dims = [dim] if isinstance(dim, int) else list(dim or range(self.dim()))
    return magnitude.amax(dims, keepdim) if ord > 0 else magnitude.amin(dims, keepdim)
