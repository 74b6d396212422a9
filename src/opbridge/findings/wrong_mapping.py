"""Torch's own mapping may compute something else than PyTorch, and opbridge's is taken instead (link 2).

What it means: torch.onnx exports the operator without an error, but the model's results differ from PyTorch's.

Why it is a problem: nobody is told. It shows only when the results are compared.

Example: ``avg_pool2d`` with a ``divisor_override``, which torch.onnx ignores.

Fix: nothing to do in opbridge; exported by torch.onnx alone, the model is wrong.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "wrong-mapping"


def finding(target: str, *, why: str, rung: str, sources: tuple[str, ...] = ()) -> Finding:
    """Made of an operator whose mapping in the catalog replaces torch's own.

    Args:
        target: The operator.
        why: What torch's mapping gets wrong, in a line.
        rung: The rung of the catalog's mapping.
        sources: Where the model calls it.
    """
    return Finding(
        CODE,
        target,
        f"opbridge maps {target} itself, for torch.onnx is not always right: {why.rstrip('.')}.",
        "nothing to do; a model exported by torch.onnx alone is wrong where that matters.",
        severity="warning",
        rung=rung,
        mended=True,
        sources=sources,
    )
