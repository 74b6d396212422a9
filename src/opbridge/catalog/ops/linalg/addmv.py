"""``addmv`` and ``addmm``."""

from __future__ import annotations

import torch
from torch import Tensor

from opbridge.catalog.declare.spec import decomposition

_WHY = "torch's mapping stores alpha and beta in float32, and propagates NaN of self if beta is 0"


def scaled_sum(self: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """The scaled sum; ``self`` is ignored if beta is 0. As in PyTorch, both factors have the tensors' dtype."""
    if not product.is_floating_point() and not product.is_complex():
        beta, alpha = int(beta), int(alpha)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return ((self if beta == 1 else self * beta) + scaled).expand(product.shape)


@decomposition("aten::addmv", overrides=_WHY)
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum beta x + alpha (mat vec).

    addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    return scaled_sum(self, torch.mv(mat, vec), beta, alpha)


@decomposition("aten::addmm", overrides="engines ignore Gemm's beta if the inner dimension is 0; see also addmv")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """The sum beta x + alpha (mat1 mat2) if ONNX's Gemm is not suitable: in float64, and for an inner dimension of 0.

    addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor
    """
    terms = mat1.shape[1]
    has_terms = isinstance(terms, int) and terms > 0
    if self.dtype != torch.float64 and (beta == 1 or has_terms):
        return NotImplemented
    return scaled_sum(self, torch.mm(mat1, mat2), beta, alpha)
