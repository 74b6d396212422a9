"""No rule maps the operator to ONNX (link 2).

What it means: neither torch.onnx, nor opbridge's catalog, nor the user has a mapping for it.

Why it is a problem: the operator can't appear in the ONNX model.

Example: ``torch.ops.mmcv.roi_align_rotated``, registered from C++.

Fix: ``@opbridge.decomposition`` in torch operators; ``@opbridge.translation`` in ONNX operators; or
``@opbridge.body_for`` to keep it one node that carries its definition.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "unmapped-operator"


def finding(target: str, *, count: int = 1, rung: str | None = None, sources: tuple[str, ...] = ()) -> Finding:
    """Made by the plan for an operator without a mapping.

    Args:
        target: The operator.
        count: How many times the graph has it.
        rung: The rung of opbridge's own that mends it, or None.
        sources: Where the model calls it.
    """
    where = (
        f" (used {count} times, first at {sources[0]})"
        if sources and count > 1
        else f" (at {sources[0]})"
        if sources
        else ""
    )
    return Finding(
        CODE,
        target,
        f"torch.onnx has no mapping of {target} to ONNX{where}.",
        f"nothing to do: opbridge's catalog has one, rung {rung}."
        if rung
        else f"write it in torch operators under @opbridge.decomposition({target!r}), in ONNX operators under "
        f"@opbridge.translation({target!r}), or keep it one node with @opbridge.body_for({target!r}).",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
