"""An input of the model is never used.

What it means: no output depends on it.

Why it is a problem: the exporter keeps or drops such an input, and a program that feeds the model has to know which. It
is often a mistake: a size was read while capturing and became a constant.

Example::

    def forward(self, x, size):
        return F.interpolate(x, (32, 32))

Fix: leave the input out of ``forward``, or use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.findings.base import Finding

if TYPE_CHECKING:
    import torch

CODE = "unused-input"


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognised by a placeholder without users; Python constants among the inputs don't count."""
    import torch

    users = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node.name in users and not node.users and isinstance(value, torch.Tensor | torch.SymInt):
            yield finding(node.name)


def finding(name: str) -> Finding:
    """Made of the input's name."""
    return Finding(
        CODE,
        name,
        f"The input {name!r} is never used: no output depends on it.",
        f"remove {name!r} from forward's parameters, or check that its value was not turned into a constant.",
        severity="warning",
    )
