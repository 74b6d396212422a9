"""The eigenvalues and eigenvectors of real nonsymmetric matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.repeat import is_empty
from opbridge.catalog.formulas.schur import quasi_triangular, triangular_eigenvectors, triangular_pairs
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Eig", "eig.h")


@translation("aten::linalg_eig")
def linalg_eig(self: Any) -> Any:
    """The complex eigenvalues, and the eigenvectors as columns of length 1.

    linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)

    Their order, and the phases of the vectors, may differ from PyTorch's.
    """
    return custom_node("opbridge::Eig", self, num_outputs=2)


@body_for("opbridge::Eig")
def eig(a: Tensor) -> tuple[Tensor, Tensor]:
    """The real Schur form, in which real eigenvalues have no imaginary part; a Loop of about 2 n sweeps."""
    if is_empty(a):
        return a.new_zeros(*a.shape[:-1], 2), a.new_zeros(*a.shape, 2)
    largest = a.abs().amax(-2, keepdim=True).amax(-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1)
    values, upper, basis = triangular_pairs(*quasi_triangular(a / scale))
    real, imaginary = triangular_eigenvectors(values, upper)
    left = basis[0] @ real - basis[1] @ imaginary
    right = basis[0] @ imaginary + basis[1] @ real
    length = (left.square() + right.square()).sum(-2, keepdim=True).sqrt()
    vectors = torch.stack([left / length, right / length], -1)
    return torch.stack([values[0].squeeze(-1), values[1].squeeze(-1)], -1) * scale, vectors
