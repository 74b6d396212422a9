"""The eigenvalues and eigenvectors of symmetric matrices."""

from __future__ import annotations

from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, decomposition, translation
from opbridge.catalog.formulas.jacobi import diagonalized
from opbridge.catalog.formulas.repeat import is_empty
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Eigh", "eigh.h")
kernel_for("opbridge::Eigvalsh", "eigvalsh.h")


@translation("aten::_linalg_eigh")
def _linalg_eigh(self: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    """The eigenvalues in ascending order, and the eigenvectors as columns: empty unless ``compute_v``.

    _linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)

    Only one triangle is read. Signs, and the vectors of equal eigenvalues, may differ from PyTorch's.
    """
    upper = UPLO.upper() == "U"
    if compute_v:
        return custom_node("opbridge::Eigh", self, num_outputs=2, upper=upper)
    return custom_node("opbridge::Eigvalsh", self, upper=upper), op.Cast(op.Constant(value_floats=[]), to=self.dtype)


@decomposition("aten::linalg_eigvalsh")
def linalg_eigvalsh(self: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues in ascending order, without the eigenvectors that PyTorch's decomposition computes.

    linalg_eigvalsh(Tensor self, str UPLO="L") -> Tensor
    """
    return torch.ops.aten._linalg_eigh.default(self, UPLO, False)[0]


@body_for("opbridge::Eigh")
def eigh(a: Tensor, upper: int) -> tuple[Tensor, Tensor]:
    """The decomposition by Jacobi rotations (:func:`diagonalized`) and a sort."""
    if is_empty(a):
        return a.new_zeros(a.shape[:-1]), a.clone()
    symmetric = a.triu() + a.triu(1).mT if upper else a.tril() + a.tril(-1).mT
    largest = symmetric.abs().amax(-2, keepdim=True).amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1)
    values, vectors = diagonalized(symmetric / scale)
    values, order = values.sort(dim=-1)
    ordered = vectors.gather(-2, order.unsqueeze(-1).expand_as(vectors))
    return values * scale.squeeze(-1), ordered.mT.clone()


@body_for("opbridge::Eigvalsh")
def eigvalsh(a: Tensor, upper: int) -> Tensor:
    """The eigenvalues only, in ascending order."""
    return eigh(a, upper)[0]
