"""The QR decomposition."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition


@decomposition("aten::linalg_qr")
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q with orthonormal columns and an upper triangular R; in mode ``r`` Q is empty.

    linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)

    Householder reflections are used as in PyTorch (LAPACK's ``geqrf`` and ``orgqr``), so that signs agree too.
    """
    factors, taus = torch.geqrf(A)
    rows, steps = A.shape[-2], taus.shape[-1]
    kept = rows if mode == "complete" else steps
    upper = factors[..., :kept, :].triu()
    if mode == "r":
        return A.new_empty(0), upper
    identity = torch.eye(rows, kept, dtype=A.dtype).expand(*A.shape[:-2], rows, kept)
    return torch.ormqr(factors, taus, identity), upper
