"""An operator forced a higher opset.

What it means: its mapping uses ONNX nodes that exist from this version on.

Why it is a problem: mostly none. Older engines may not know the version.

Example: ``torchvision::deform_conv2d`` becomes ``DeformConv``, which ONNX has from opset 19 on.

Fix: none needed; to stay lower, map the operator in another way.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "opset-raised"


def finding(target: str, *, opset: int, instead_of: int, sources: tuple[str, ...] = ()) -> Finding:
    """Made by the plan, of the operator, the opset taken, and the one that would have served without it."""
    return Finding(
        CODE,
        target,
        f"{target} needs opset {opset}; the rest of the model needs {instead_of}.",
        f"nothing to do; for an engine that stops at opset {instead_of}, give {target} a mapping with older nodes: "
        f"@opbridge.decomposition({target!r}).",
        severity="info",
        rung="opset",
        mended=True,
        sources=sources,
    )
