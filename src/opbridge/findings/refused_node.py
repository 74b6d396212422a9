"""The engine refuses a node of an ONNX model (link 3).

What it means: the engine refuses this operator at the model's opset, with these types and ranks.

Why it is a problem: the engine refuses to load the whole model.

Example: a ``Conv`` on double tensors, or a node in a custom domain that the engine does not know.

Fix: opbridge first tries casts, the function bodies of the ONNX standard, and another opset. If none of them helps,
define a body or a kernel for a custom node, or use another version of the engine.
"""

from __future__ import annotations

from opbridge.findings.base import Finding, shortened

CODE = "refused-node"


def finding(
    target: str, *, engine: str, reason: str, rung: str | None = None, how: str = "", sources: tuple[str, ...] = ()
) -> Finding:
    """Make the finding from a refusal found by the probe.

    Args:
        target: The ONNX operator: ``"ai.onnx::Conv"``.
        engine: The engine's name and version.
        reason: The engine's message.
        rung: The rung that fixes the problem, or None.
        how: A description of the fix.
        sources: The names of the nodes.
    """
    custom = not target.startswith("ai.onnx::")
    where = f" (node {sources[0]}{f' and {len(sources) - 1} more' if len(sources) > 1 else ''})" if sources else ""
    fix = (
        f"define {target} in torch operators with @opbridge.body_for({target!r}), or give it a kernel with "
        f"opbridge.kernel_for({target!r}, 'file.h'), in a file passed with --ops."
        if custom
        else "try another --opset, another version of the engine (--engine NAME==VERSION), or replace the node."
    )
    return Finding(
        CODE,
        target,
        f"{engine} refuses {target}{where}: {shortened(reason, 160)}",
        f"nothing to do: rung {rung} fixes it{f' ({how})' if how else ''}." if rung else fix,
        severity="info" if rung else "error",
        rung=rung,
        mended=rung is not None,
        sources=sources,
    )
