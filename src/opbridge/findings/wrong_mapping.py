"""Torch's own mapping may be wrong, and opbridge's mapping replaces it (link 2).

What it means: torch.onnx exports the operator without an error, but the results may differ from PyTorch's.

Why it is a problem: torch.onnx gives no warning; the difference shows only when results are compared.

Example: ``avg_pool2d`` with a ``divisor_override``, which torch.onnx ignores.

Fix: none needed in opbridge. A model exported with torch.onnx alone is wrong.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "wrong-mapping"


def finding(target: str, *, why: str, rung: str, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding for an operator whose mapping in the catalog replaces torch's.

    Args:
        target: The operator.
        why: One line that states what torch's mapping gets wrong.
        rung: The rung of the catalog's mapping.
        sources: The lines that call the operator.
    """
    return Finding(
        CODE,
        target,
        f"opbridge's mapping of {target} replaces torch.onnx's, which is not always correct: {why.rstrip('.')}.",
        "nothing to do; a model exported with torch.onnx alone is wrong in these cases.",
        severity="warning",
        rung=rung,
        mended=True,
        sources=sources,
    )
