"""Norms of matrices of dynamic sizes: the extreme sums of magnitudes along rows or columns, and singular values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import rewrite
from opbridge.catalog.formulas.fixed_sizes import have_fixed_sizes


@rewrite("torch.linalg.matrix_norm")
def matrix_norm(
    original: Callable[..., Tensor],
    A: Tensor,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Any:
    """The largest (or for a negative ``ord`` smallest) singular value for 2, or sum of magnitudes for 1 and infinity.

    linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2,-1], bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor

    torch's implementation reads the numbers of elements and of sums as integers, which makes them constant. The sums
    are those of columns for 1 and of rows for infinity. Without rows or columns, the largest sum is 0.
    """
    if isinstance(ord, str) or abs(ord) not in (1, 2, math.inf) or out is not None or have_fixed_sizes(A):
        return NotImplemented
    if abs(ord) == 2:
        values = torch.linalg.svdvals(A.to(dtype or A.dtype).movedim(tuple(dim), (-2, -1)))[..., None]
        result = values.amax((-2, -1), True) if ord > 0 else values.amin((-2, -1), True)
        return result.movedim((-2, -1), tuple(dim)) if keepdim else result[..., 0, 0]
    summed, compared = dim if abs(ord) == 1 else reversed(dim)
    sums = torch.linalg.vector_norm(A, 1, summed, True, dtype=dtype)
    if ord > 0:
        sums = torch.cat([sums, torch.zeros_like(sums.sum(compared, True))], compared)
    result = sums.amax(compared, True) if ord > 0 else sums.amin(compared, True)
    return result if keepdim else result.squeeze(list(dim))


@rewrite("torch.linalg.norm")
def norm(
    original: Callable[..., Tensor],
    A: Tensor,
    ord: Any = None,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Norms of matrices, as in :func:`matrix_norm`.

    linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor
    """
    axes = (0, 1) if dim is None and ord is not None and A.dim() == 2 else dim
    if ord is None or not isinstance(axes, Sequence) or len(axes) != 2:
        return NotImplemented
    return matrix_norm(original, A, ord, axes, keepdim, dtype=dtype, out=out)
