"""The singular value decomposition."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, translation
from opbridge.catalog.formulas.householder import factored, reflected
from opbridge.catalog.formulas.jacobi import orthogonalized
from opbridge.catalog.formulas.repeat import is_empty
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Svd", "svd.h")
kernel_for("opbridge::Svdvals", "svdvals.h")


@translation("aten::_linalg_svd")
def _linalg_svd(self: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> Any:
    """U, the singular values in descending order and Vᵀ; U and Vᵀ are empty unless ``compute_uv``.

    _linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U, Tensor S,
    Tensor Vh)

    Signs, and the vectors of equal singular values, may differ from PyTorch's. ``driver`` applies only to GPUs.
    """
    if not compute_uv:
        empty = op.Cast(op.Constant(value_floats=[]), to=self.dtype)
        return empty, custom_node("opbridge::Svdvals", self, is_wide=_is_wide(self)), empty
    return custom_node("opbridge::Svd", self, num_outputs=3, full_matrices=full_matrices, is_wide=_is_wide(self))


@decomposition("aten::linalg_svdvals")
def linalg_svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values in descending order, without the vectors that PyTorch's decomposition computes.

    linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor
    """
    return torch.ops.aten._linalg_svd.default(A, False, False)[1]


def _is_wide(matrices: Any) -> bool:
    """Whether there are fewer rows than columns, if the sizes are known."""
    rows, columns = matrices.shape[-2:]
    return isinstance(rows, int) and isinstance(columns, int) and rows < columns


@body_for("opbridge::Svd")
def svd(a: Tensor, full_matrices: int, is_wide: int) -> tuple[Tensor, Tensor, Tensor]:
    """One-sided Jacobi rotations (:func:`orthogonalized`), which are faster on the shorter side.

    The rotated columns are U S. Their QR decomposition yields U, including the columns of zero singular values and the
    remaining columns of a full matrix.
    """
    if is_wide:
        left, values, right = svd(a.mT, full_matrices, is_wide=0)
        return right.mT.clone(), values, left.mT.clone()
    size, count = a.shape[-2], torch.sym_min(a.shape[-2], a.shape[-1])
    if is_empty(a):
        return _empty(a, bool(full_matrices))
    scale = _scale(a)
    rows, rotations = orthogonalized((a / scale).mT)
    lengths, order = torch.linalg.vector_norm(rows, dim=-1).sort(descending=True, dim=-1)
    order = order.unsqueeze(-1)
    factors, taus = factored(rows.gather(-2, order.expand_as(rows)).mT)
    places = torch.arange(size).unsqueeze(-1)
    diagonal = torch.where(places == torch.arange(a.shape[-1]), factors, 0).sum(-1, keepdim=True)
    kept = size if full_matrices else count
    signs = torch.where(diagonal < 0, -1, 1).to(a.dtype) * (places == torch.arange(kept))
    right = rotations.gather(-2, order.expand_as(rotations))
    left = reflected(factors, taus, signs)
    return left, lengths[..., :count] * scale.squeeze(-1), right if full_matrices else right[..., :count, :]


@body_for("opbridge::Svdvals")
def svdvals(a: Tensor, is_wide: int) -> Tensor:
    """The singular values only, which are the norms of the rotated columns."""
    if is_empty(a):
        return _empty(a, False)[1]
    rows = a if is_wide else a.mT
    scale = _scale(a)
    rows, _ = orthogonalized(rows / scale)
    lengths = torch.linalg.vector_norm(rows, dim=-1).sort(descending=True, dim=-1).values
    return lengths[..., : torch.sym_min(a.shape[-2], a.shape[-1])] * scale.squeeze(-1)


def _empty(a: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Identity matrices, for matrices without elements or an empty batch."""
    *batch, rows, columns = a.shape
    count = min(rows, columns)
    left = torch.eye(rows, rows if full_matrices else count, dtype=a.dtype)
    right = torch.eye(columns if full_matrices else count, columns, dtype=a.dtype)
    return (
        left.expand(*batch, *left.shape).clone(),
        a.new_zeros(*batch, count),
        right.expand(*batch, *right.shape).clone(),
    )


def _scale(a: Tensor) -> Tensor:
    """The largest magnitude of each matrix, as a scale against overflow and underflow; 1 for zeros."""
    largest = a.abs().amax(-2, keepdim=True).amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, 1)
