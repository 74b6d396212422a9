"""An input of the model is never used.

What it means: no output depends on the input.

Why it is a problem: an exporter may keep or drop such an input, and a program that runs the model must know which. The
cause is often a mistake: for example a size that became a constant during the capture.

Example::

    def forward(self, x, size):
        return F.interpolate(x, (32, 32))

Fix: remove the input from ``forward``, or use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.findings.base import Finding

if TYPE_CHECKING:
    import torch

CODE = "unused-input"


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognized by a placeholder without users; Python constants among the inputs are ignored."""
    import torch

    users = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node.name in users and not node.users and isinstance(value, torch.Tensor | torch.SymInt):
            yield finding(node.name)


def finding(name: str) -> Finding:
    """Make the finding from the input's name."""
    return Finding(
        CODE,
        name,
        f"The input {name!r} is never used: no output depends on it.",
        f"remove {name!r} from forward's parameters, or check that its value was not turned into a constant.",
        severity="warning",
    )
