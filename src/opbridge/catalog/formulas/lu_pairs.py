"""The LU factorization of complex matrices as pairs of real numbers: an operator of our own.

A rule for complex tensors is made of torch operators on real ones, and a loop over columns is none. The operator's ONNX
form is in ``ops/linalg``.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["lu_factor_pairs"]


@torch.library.custom_op("opbridge::lu_factor_pairs", mutates_args=())
def lu_factor_pairs(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``torch.linalg.lu_factor_ex`` gives for complex matrices.

    Args:
        a: Of shape (.., m, n, 2).

    Returns:
        L and U in one, of the same shape; the row that each was swapped with, of shape (.., min(m, n)), and the first
        pivot that is zero, of shape (..), both int32 and counted from one.
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
