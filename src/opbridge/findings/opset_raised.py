"""An operator requires a higher opset.

What it means: the operator's mapping uses ONNX operators that exist only from this opset on.

Why it is a problem: usually it is none, but an older engine may not support the opset.

Example: ``torchvision::deform_conv2d`` becomes ``DeformConv``, which ONNX has from opset 19 on.

Fix: none needed. To keep a lower opset, define another mapping for the operator.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "opset-raised"


def finding(target: str, *, opset: int, instead_of: int, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding from the operator, the chosen opset, and the opset that the rest of the model needs."""
    return Finding(
        CODE,
        target,
        f"{target} needs opset {opset}; the rest of the model needs {instead_of}.",
        f"nothing to do; for an engine that supports only opset {instead_of}, map {target} to older operators: "
        f"@opbridge.decomposition({target!r}).",
        severity="info",
        rung="opset",
        mended=True,
        sources=sources,
    )
