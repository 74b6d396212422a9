"""The installed components as a table, and the commands that install the missing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, table

__all__ = ["environment_view"]


def environment_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Environment.to_dict()``."""
    result = table("component", "version", "status", "needed for")
    for component in data["components"]:
        fine = component["status"] == "ok"
        style = "" if fine else ("bold red" if component["required"] else "yellow")
        purpose = component["purpose"] + ("" if component["required"] else " (optional)")
        result.add_row(component["name"], component["version"] or "", component["status"], purpose, style=style)
    yield result
    yield paragraph(f"{data['system']}, {data['cpus']} CPUs")
    for component in data["components"]:
        if component["status"] != "ok":
            detail = f" ({component['detail']})" if component["detail"] else ""
            yield paragraph(f"{component['name']} is {component['status']}{detail}: {component['fix']}", "bold")
    if data["ok"]:
        yield paragraph("All components that export, verify and run need are installed.", "bold green")
