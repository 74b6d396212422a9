"""The files of a new operator, and what to run next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph

__all__ = ["scaffold_view"]


def scaffold_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Scaffold.to_dict()``. The commands are on separate lines, so that they can be copied."""
    for file in data["files"]:
        yield paragraph(f"wrote {file}")
    yield paragraph("\nnext:", "bold")
    for command in data["commands"]:
        yield paragraph(f"  {command}")
