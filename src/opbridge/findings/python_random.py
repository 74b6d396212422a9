"""The model draws random numbers with Python or NumPy.

What it means: ``forward`` calls ``random.randint``, ``numpy.random.rand`` or the like, and a result depends on it.

Why it is a problem: torch.export runs ``forward`` once. The number, or a size made of it, would be a constant of the
model: that of one run.

Example::

    start = random.randint(0, 4)
    return x[start:]

Fix: draw with torch. For a size or an index: ``torch.randint(0, 5, ()).item()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbridge.findings.base import Finding, source_names

if TYPE_CHECKING:
    from opbridge.torch_graph.sources import SourceLine

CODE = "python-random"


def finding(place: SourceLine | None = None) -> Finding:
    """Make the finding from the line that draws, if it is known."""
    where = f" at {place}" if place is not None else ""
    return Finding(
        CODE,
        "random",
        f"forward draws random numbers with Python or NumPy{where}; they would be constants of the model.",
        "draw with torch: torch.rand(()) for a number, torch.randint(0, 5, ()).item() for a size or an index from 0 to "
        "4; or pass the number as an input.",
        sources=source_names(place),
    )
