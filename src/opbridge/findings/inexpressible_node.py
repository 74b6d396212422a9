"""A node has no equivalent in the opset that was asked for, or that the engine takes.

What it means: the model is taken down to an older opset, and this node uses what only a newer one has.

Why it is a problem: a model of that opset can't be written.

Example: ``--opset 11`` for a model that draws from a Bernoulli distribution.

Fix: a newer opset, or other operators that the old opset has.
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
    """Made of what the conversion to the opset says.

    Args:
        target: The torch operator that the node comes from, or the ONNX operator itself.
        node: The ONNX operator: ``"ai.onnx::Bernoulli"``.
        opset: The opset that can't express it.
        engine: The engine's name and version.
        reason: Why.
        rung: The rung that avoids the node, or None.
        sources: Where the model calls the operator, or the nodes' names.
    """
    where = f" at {sources[0]}" if sources else ""
    what = node if node == target else f"{node}, which {target}{where} becomes"
    return Finding(
        CODE,
        target,
        f"Opset {opset}, for {engine}, can't express {what}: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} avoids the node."
        if rung
        else f"ask for a newer --opset or a newer version of the engine, or write {target} in operators that opset "
        f"{opset} has.",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
