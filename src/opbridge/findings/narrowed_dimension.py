"""A dynamic dimension is captured for only part of its range.

What it means: the model branches on a size, and the branch that the example input took is valid only for this range.

Why it is a problem: the ONNX model accepts other sizes, but computes the wrong branch for them.

Example::

    if x.shape[0] > 5:          # captured with 3 rows: correct for 2 to 5
        ...

Fix: keep the inputs within the range, and declare it with ``torch.export.Dim("n", min=2, max=5)``; or write the branch
with ``torch.cond``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opbridge.findings.base import Finding

if TYPE_CHECKING:
    import torch

CODE = "narrowed-dimension"

_ANY = 2**31
"""An upper limit from here on means that there is none: torch uses infinity or the largest integer."""


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Every dynamic dimension of an input that has an upper limit, declared or derived by torch."""
    seen: set[Any] = set()
    users = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        for dimension, size in enumerate(getattr(node.meta.get("val"), "shape", ()) if node.name in users else ()):
            symbol = getattr(getattr(size, "node", None), "expr", None)
            limits = program.range_constraints.get(symbol) if symbol is not None else None
            if limits is not None and limits.upper < _ANY and symbol not in seen:
                seen.add(symbol)
                yield finding(node.name, dimension, int(limits.lower), int(limits.upper))


def finding(name: str, dimension: int, low: int, high: int) -> Finding:
    """Make the finding from the input's name, its dimension, and the limits of the size in the captured graph."""
    return Finding(
        CODE,
        name,
        f"Dimension {dimension} of the input {name!r} can vary only from {low} to {high}.",
        f"use sizes from {low} to {high}; if others are needed, write the branch on this size with torch.cond.",
        severity="warning",
    )
