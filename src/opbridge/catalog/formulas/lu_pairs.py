"""The LU factorization of complex matrices as pairs of real numbers, as a custom operator.

A rule for complex tensors consists of torch operators on real tensors, which can't express a loop over columns. The
operator's ONNX form is in ``ops/linalg``.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["lu_factor_pairs"]


@torch.library.custom_op("opbridge::lu_factor_pairs", mutates_args=())
def lu_factor_pairs(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The result of ``torch.linalg.lu_factor_ex`` for complex matrices.

    Args:
        a: Matrices of shape (.., m, n, 2).

    Returns:
        L and U in one tensor of the same shape; the row that each row was interchanged with, of shape (.., min(m, n));
        and the index of the first zero pivot, of shape (..). The latter two are int32 and count from 1.
    """
    factors, swaps, info = torch.linalg.lu_factor_ex(torch.view_as_complex(a.contiguous()))
    return torch.view_as_real(factors).contiguous(), swaps, info


@lu_factor_pairs.register_fake
def _shapes(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, n = a.shape[-3:-1]
    count = m if m == n else torch.sym_min(m, n)
    return (
        torch.empty_like(a, memory_format=torch.contiguous_format),
        a.new_empty((*a.shape[:-3], count), dtype=torch.int32),
        a.new_empty(a.shape[:-3], dtype=torch.int32),
    )
