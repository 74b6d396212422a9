"""A dynamic dimension is captured for part of its sizes only.

What it means: the model branches on a size, and the branch that the example input took holds for this range.

Why it is a problem: the ONNX model accepts other sizes, and computes the wrong branch for them.

Example::

    if x.shape[0] > 5:          # captured with 3 rows: right for 2 to 5
        ...

Fix: keep the inputs within the range, and say so with ``torch.export.Dim("n", min=2, max=5)``; or write the branch with
``torch.cond``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opbridge.findings.base import Finding

if TYPE_CHECKING:
    import torch

CODE = "narrowed-dimension"

_ANY = 2**31
"""Torch writes an absent maximum as infinity or as the largest integer."""


def detect(program: torch.export.ExportedProgram) -> Iterator[Finding]:
    """Every dynamic dimension of an input with an upper bound: declared so, or found by torch."""
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
    """Made of the input's name, its dimension, and the smallest and largest size that the captured graph serves."""
    return Finding(
        CODE,
        name,
        f"Dimension {dimension} of the input {name!r} may vary from {low} to {high} only.",
        f"keep to sizes from {low} to {high}; if more was meant, write the branch on this size with torch.cond.",
        severity="warning",
    )
