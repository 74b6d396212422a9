"""The model draws random numbers.

What it means: an operator such as ``torch.rand``, ``multinomial`` or ``bernoulli`` is part of the graph.

Why it is a problem: PyTorch and the engine draw different numbers, so their results cannot be compared element by
element.

Example::

    noise = torch.randn_like(x)

Fix: none needed, because the results are compared by distribution. For an exact comparison make the noise an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from opbridge.findings.base import Finding, source_names
from opbridge.findings.training_mode import in_training
from opbridge.torch_graph.sources import source_of_node

if TYPE_CHECKING:
    import torch

CODE = "random-operator"


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Recognized by torch's tag of operators that use a random generator, except in evaluation mode."""
    import torch

    nodes: dict[str, list[torch.fx.Node]] = {}
    for node in program.graph.nodes:
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random and in_training(node) is not False:
            nodes.setdefault(node.target.name(), []).append(node)
    for target, found in nodes.items():
        yield finding(target, source_names(*map(source_of_node, found)))


def finding(target: str, sources: tuple[str, ...] = ()) -> Finding:
    """Make the finding from a random operator and the lines that call it."""
    where = f" at {', '.join(sources[:3])}" if sources else ""
    return Finding(
        CODE,
        target,
        f"{target}{where} draws random numbers; its results are compared with PyTorch's by distribution.",
        "nothing to do; for an exact comparison pass the random numbers as an input of the model.",
        severity="warning",
        sources=sources,
    )
