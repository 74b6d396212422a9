"""Branches and loops that depend on the values of tensors became ONNX nodes.

What it means: an ``if`` became ``If`` (or ``Where``, if it only chooses between numbers), and a loop became ``Loop``.
Both branches of an ``if`` are in the model.

Why it is a problem: it is none. The function was changed only while it was captured.

Example::

    if x.sum() > 0:
        x = self.near(x)
    else:
        x = self.far(x)

Fix: none is needed; docs/control-flow.md lists what is converted.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbridge.findings.base import Finding

CODE = "converted-control-flow"


def finding(operators: Sequence[tuple[str, str]]) -> Finding:
    """Make the finding.

    Args:
        operators: The ONNX operator of each statement, and its line: ``("If", "model.py:12")``.
    """
    lines = {name: [line for operator, line in operators if operator == name] for name, _ in operators}
    nodes = ", ".join(f"{name} ({', '.join(places)})" for name, places in sorted(lines.items()))
    return Finding(
        CODE,
        ", ".join(sorted(lines)),
        f"Control flow that depends on the values of tensors became {nodes}.",
        "nothing is to be done; docs/control-flow.md lists what is converted.",
        severity="info",
        rung="rewrite",
        mended=True,
        sources=tuple(dict.fromkeys(line for _, line in operators)),
    )
