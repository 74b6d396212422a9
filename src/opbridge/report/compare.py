"""A comparison of two models as tables: the error of each output, and the first mismatching node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph
from opbridge.report.verification import verification_view

__all__ = ["comparison_view"]


def comparison_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``ModelComparison.to_dict()``."""
    yield paragraph(f"A: {data['first']}")
    yield paragraph(f"B: {data['second']}")
    yield ""
    yield from verification_view(data["verification"])
    for note in data["notes"]:
        yield paragraph(note, "dim")
    verdict = "compute the same within the tolerance" if data["equal"] else "do not compute the same"
    yield paragraph(f"A and B {verdict}", "bold green" if data["equal"] else "bold red")
