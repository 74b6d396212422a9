"""The engine has no kernel for a node (link 3).

What it means: the installed engine refuses this ONNX operator at this version, with these types and ranks.

Why it is a problem: the engine refuses to load the whole model.

Example: a ``Conv`` on double tensors in ONNX Runtime's CPU build.

Fix: use another rung (opbridge tries them), another dtype, a newer engine, or your own kernel.
"""

from __future__ import annotations

from opbridge.findings.base import Finding, shortened

CODE = "no-kernel"


def finding(
    target: str, *, node: str, engine: str, reason: str, rung: str | None = None, sources: tuple[str, ...] = ()
) -> Finding:
    """Make the finding from a refusal found by the probe.

    Args:
        target: The torch operator that produced the node.
        node: The ONNX operator with its version and types: ``"ai.onnx::Conv-11 (double, double)"``.
        engine: The engine's name and version.
        reason: The engine's message.
        rung: The rung that avoids the node, or None.
        sources: The lines that call the torch operator.
    """
    where = f" at {sources[0]}" if sources else ""
    return Finding(
        CODE,
        target,
        f"{engine} has no kernel for {node}, which {target}{where} becomes: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} avoids the node."
        if rung
        else f"use another dtype (model.float()) or a newer {engine.split()[0]}, or define {target} by other operators "
        f"with @opbridge.decomposition({target!r}).",
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
