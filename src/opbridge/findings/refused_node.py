"""The engine refuses a node of an ONNX model (link 3).

What it means: asked for this operator at the model's opset, with these types and ranks, the engine refuses.

Why it is a problem: the engine refuses to load the whole model.

Example: a ``Conv`` on double tensors, or a node of a custom domain that the engine has never heard of.

Fix: what opbridge tries by itself (casts, the standard's own bodies, another opset); else a body or a kernel for a
custom node, or another version of the engine.
"""

from __future__ import annotations

from opbridge.findings.base import Finding, shortened

CODE = "refused-node"


def finding(
    target: str, *, engine: str, reason: str, rung: str | None = None, how: str = "", sources: tuple[str, ...] = ()
) -> Finding:
    """Made of a refusal that the probe got.

    Args:
        target: The ONNX operator: ``"ai.onnx::Conv"``.
        engine: The engine's name and version.
        reason: What the engine said.
        rung: The rung that mends it, or None.
        how: What was done.
        sources: The nodes' names.
    """
    custom = not target.startswith("ai.onnx::")
    where = f" (node {sources[0]}{f' and {len(sources) - 1} more' if len(sources) > 1 else ''})" if sources else ""
    fix = (
        f"say what {target} computes with @opbridge.body_for({target!r}) in torch operators, or give it a kernel with "
        f"opbridge.kernel_for({target!r}, 'file.h'), in a file named with --ops."
        if custom
        else "try another --opset, another version of the engine (--engine NAME==VERSION), or replace the node."
    )
    return Finding(
        CODE,
        target,
        f"{engine} refuses {target}{where}: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} mends it{f' ({how})' if how else ''}." if rung else fix,
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
