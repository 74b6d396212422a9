"""The files of a new operator or program, and what to run next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph

__all__ = ["scaffold_view"]


def scaffold_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Scaffold.to_dict()`` or ``App.to_dict()``. Each command is one line, so that it can be copied."""
    if data.get("note"):
        yield paragraph(data["note"], "yellow")
    for file in data["files"]:
        yield paragraph(f"wrote {file}")
    yield paragraph("\nnext:", "bold")
    for command in data["commands"]:
        yield paragraph(f"  {command}")
