"""The engine has no kernel for a node (link 3).

What it means: asked for this ONNX operator at this version, these types and ranks, the installed engine refuses.

Why it is a problem: the engine refuses to load the whole model.

Example: a ``Conv`` on double tensors in ONNX Runtime's CPU build.

Fix: another rung (opbridge tries them), another dtype, a newer engine, or a kernel of one's own.
"""

from __future__ import annotations

from opbridge.findings.base import Finding, shortened

CODE = "no-kernel"


def finding(
    target: str, *, node: str, engine: str, reason: str, rung: str | None = None, sources: tuple[str, ...] = ()
) -> Finding:
    """Made of a refusal that the probe got.

    Args:
        target: The torch operator that the node comes from.
        node: The ONNX operator with version and types: ``"ai.onnx::Conv-11 (double, double)"``.
        engine: The engine's name and version.
        reason: What the engine said.
        rung: The rung that avoids the node, or None.
        sources: Where the model calls the torch operator.
    """
    where = f" at {sources[0]}" if sources else ""
    return Finding(
        CODE,
        target,
        f"{engine} has no kernel for {node}, which {target}{where} becomes: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} avoids the node."
        if rung
        else f"use another dtype (model.float()) or a newer {engine.split()[0]}, or write {target} in other operators "
        f"under @opbridge.decomposition({target!r}).",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
