"""The pseudoinverse."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(
    self: Tensor, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """The pseudoinverse from the singular values above max(atol, rtol times the largest one).

    linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor

    Golub & Van Loan, "Matrix Computations", 5.5.2.
    """
    rows, columns = self.shape[-2:]
    if rows == 0 or columns == 0:
        return self.mT.clone()
    if hermitian:
        values, vectors = torch.linalg.eigh(self)
        sizes, left, right = values.abs(), vectors, vectors
    else:
        left, values, adjoint = torch.linalg.svd(self, full_matrices=False)
        sizes, right = values, adjoint.mH
    is_kept = sizes > limit_of(sizes, torch.sym_max(rows, columns), atol, rtol)
    inverses = torch.where(is_kept, 1 / torch.where(is_kept, values, 1), 0)
    return (right * inverses.unsqueeze(-2)) @ left.mH


def limit_of(values: Tensor, size: Any, atol: Tensor | None, rtol: Tensor | None) -> Tensor:
    """The threshold (..., 1) below which singular values count as zero; by default the rounding of ``size`` terms."""
    largest = values.amax(-1, keepdim=True)
    # A division is used because onnxscript's optimizer would replace the small constant by 0.
    rounding = largest * size / (1 / torch.finfo(values.dtype).eps)
    if rtol is not None:
        relative = largest * rtol.to(values.dtype).unsqueeze(-1)
    else:
        relative = rounding if atol is None else torch.where(atol.unsqueeze(-1) > 0, 0, rounding)
    return relative if atol is None else torch.maximum(relative, atol.to(values.dtype).unsqueeze(-1))
