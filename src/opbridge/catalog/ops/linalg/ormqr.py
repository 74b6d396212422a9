"""Products with the Q of a QR decomposition, without computing Q."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from opbridge.catalog.declare.custom_node import custom_node
from opbridge.catalog.declare.spec import body_for, translation
from opbridge.catalog.formulas.householder import reflected
from opbridge.kernels.declared import kernel_for

kernel_for("opbridge::Ormqr", "ormqr.h")


@translation("aten::ormqr")
def ormqr(self: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
    """Q times ``input3`` or ``input3`` times Q, where ``self`` and ``input2`` are results of ``geqrf``.

    ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor
    """
    return custom_node("opbridge::Ormqr", self, input2, input3, left=left, transpose=transpose)


@body_for("opbridge::Ormqr")
def ormqr_body(vectors: Tensor, taus: Tensor, others: Tensor, left: int, transpose: int) -> Tensor:
    """One Loop over the reflections; C Q is computed as the transpose of Qᵀ Cᵀ."""
    if left:
        return reflected(vectors, taus, others, bool(transpose))
    return reflected(vectors, taus, others.mT, not transpose).mT.clone()
