"""A node has no equivalent in the requested opset, or in the newest opset of the engine.

What it means: the model is converted to an older opset, but the node uses a feature of a newer opset.

Why it is a problem: the model cannot be written at the older opset.

Example: ``--opset 11`` for a model that draws from a Bernoulli distribution.

Fix: use a newer opset, or operators that the older opset has.
"""

from __future__ import annotations

from opbridge.findings.base import Finding, shortened

CODE = "inexpressible-node"


def finding(
    target: str,
    *,
    node: str,
    opset: int,
    engine: str,
    reason: str,
    rung: str | None = None,
    sources: tuple[str, ...] = (),
) -> Finding:
    """Make the finding from a refusal of the opset conversion.

    Args:
        target: The torch operator that produced the node, or the ONNX operator itself.
        node: The ONNX operator: ``"ai.onnx::Bernoulli"``.
        opset: The opset that cannot express the node.
        engine: The engine's name and version.
        reason: The reason of the refusal.
        rung: The rung that avoids the node, or None.
        sources: The lines that call the operator, or the names of the nodes.
    """
    where = f" at {sources[0]}" if sources else ""
    what = node if node == target else f"{node}, which {target}{where} becomes"
    return Finding(
        CODE,
        target,
        f"Opset {opset}, for {engine}, can't express {what}: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} avoids the node."
        if rung
        else f"use a newer --opset or a newer version of the engine, or write {target} with operators that opset "
        f"{opset} has.",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
