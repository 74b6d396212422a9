"""The QR decomposition as Householder reflections, in the form of LAPACK."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, fake_for, translation
from opbridge.catalog.formulas.householder import factored
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Geqrf", "geqrf.h")


@translation("aten::geqrf")
def geqrf(self: Any) -> Any:
    """R with the vectors of the Householder reflections below it, and their factors tau.

    geqrf(Tensor self) -> (Tensor a, Tensor tau)
    """
    return custom_node("opbridge::Geqrf", self, num_outputs=2)


@fake_for("aten::geqrf")
def geqrf_shape(self: Tensor) -> tuple[Tensor, Tensor]:
    """The shape function; torch has none, so the capture would fail with symbolic sizes."""
    return torch.empty_like(self), self.new_empty(*self.shape[:-2], torch.sym_min(self.shape[-2], self.shape[-1]))


@body_for("opbridge::Geqrf")
def geqrf_body(a: Tensor) -> tuple[Tensor, Tensor]:
    """One Loop over the columns, which runs O(n) nodes on whole matrices."""
    return factored(a)
