"""The operator has no mapping to ONNX (link 2).

What it means: neither torch.onnx nor opbridge's catalog nor the user's code has a mapping for the operator.

Why it is a problem: the operator cannot be expressed in the ONNX model.

Example: ``torch.ops.mmcv.roi_align_rotated``, registered from C++.

Fix: define it in torch operators with ``@opbridge.decomposition``, in ONNX operators with ``@opbridge.translation``, or
as one node with an ONNX function body with ``@opbridge.body_for``.
"""

from __future__ import annotations

from opbridge.findings.base import Finding

CODE = "unmapped-operator"


def finding(target: str, *, count: int = 1, rung: str | None = None, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding for an operator that torch.onnx does not map.

    Args:
        target: The operator.
        count: The number of nodes of this operator in the graph.
        rung: The rung of the catalog's mapping, or None if it has none.
        sources: The lines that call the operator.
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
        else f"define it in torch operators with @opbridge.decomposition({target!r}), in ONNX operators with "
        f"@opbridge.translation({target!r}), or as one node with @opbridge.body_for({target!r}).",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
