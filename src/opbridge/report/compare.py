"""A comparison of two models as tables: how far they are apart, and the node at which they part."""

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
    verdict = "equal within the budget" if data["equal"] else "not equal"
    yield paragraph(f"A and B are {verdict}", "bold green" if data["equal"] else "bold red")
