"""The Gaussian error linear unit as one node."""

from __future__ import annotations

from typing import Any

from onnxscript import opset20 as op

from opbridge.catalog.declare.spec import translation


@translation(
    "aten::gelu", opset=20, overrides="torch.onnx uses ONNX's Gelu only at opset 20, and six slower nodes below"
)
def gelu(self: Any, *, approximate: str = "none") -> Any:
    """Each element times the distribution function of the standard normal distribution (Hendrycks and Gimpel, 2016).

    gelu(Tensor self, *, str approximate='none') -> Tensor
    """
    return op.Gelu(self, approximate=approximate)
