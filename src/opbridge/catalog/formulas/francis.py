"""A sweep of Francis's double-shift QR steps as a custom operator, whose ONNX form is in ``ops/linalg``.

torch has no loop over the rows of a matrix that exports to ONNX, and a ``while_loop`` passes whole matrices from step
to step, so that a sweep would take n³ operations instead of n².
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["francis_sweep"]


@torch.library.custom_op("opbridge::francis_sweep", mutates_args=())
def francis_sweep(h: Tensor, q: Tensor, first: Tensor, is_active: Tensor) -> tuple[Tensor, Tensor]:
    """H and Q after similarity transformations by reflections of three rows each, from the top to the bottom.

    The reflection of row k maps rows k to k + 2 of H's column k - 1, with ``first[:, k]`` added, to a multiple of the
    first unit vector (Golub & Van Loan, "Matrix Computations", 4th edition, 7.5.1).

    Args:
        h: Hessenberg matrices of shape (b, n, n). The element below the diagonal is zero where a block begins.
        q: Matrices of shape (b, n, n), to which the reflections are applied from the right.
        first: The first column of (H - s)(H - t) at the first row of each block, otherwise zero; of shape (b, n, 3).
        is_active: Whether each row has a reflection, of shape (b, n). The last row of a block has none.
    """
    size = h.shape[-1]
    h, q = torch.nn.functional.pad(h, (0, 3, 0, 3)), torch.nn.functional.pad(q, (0, 3))
    head = torch.tensor([[1], [0], [0]], dtype=h.dtype)
    for k in range(size):
        x = first[:, k, :, None] + (h[:, k : k + 3, k - 1 : k] if k else 0)
        scale = x.abs().amax(-2, keepdim=True)
        x = x / torch.where(scale < torch.finfo(h.dtype).tiny, torch.inf, scale)
        u = x + torch.where(x < 0, -head, head) * torch.linalg.vector_norm(x, dim=-2, keepdim=True)
        twice = 2 * is_active[:, k, None, None].to(h.dtype)
        g = u * (twice / u.square().sum(-2, keepdim=True).clamp(min=0.5))
        h[:, k : k + 3] -= g * (u.mT @ h[:, k : k + 3])
        for a in (h, q):
            a[..., k : k + 3] -= (a[..., k : k + 3] @ g) * u.mT
    # The results of an operator must not share memory with other tensors.
    return h[:, :size, :size].triu(-1), q[..., :size].clone()


@francis_sweep.register_fake
def _shapes(h: Tensor, q: Tensor, first: Tensor, is_active: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(h), torch.empty_like(q)
