"""The results of checking a file's operators, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, table

__all__ = ["operator_check_view"]

_STYLES = {"passed": "", "failed": "bold red", "not applicable": "dim", "not run": "yellow"}


def operator_check_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``OperatorCheck.to_dict()``: a row per check."""
    rows = table("operator", "sample", "check", "result", "detail")
    for result in data["results"]:
        keys = ("target", "sample", "check", "status", "detail")
        rows.add_row(*(result[key] for key in keys), style=_STYLES[result["status"]])
    yield rows
    yield ""
    counts = ", ".join(f"{count} {status}" for status, count in data["counts"].items() if count)
    verdict = "passed" if data["passed"] else "failed"
    yield paragraph(f"{data['file']}: {verdict} ({counts})", "bold green" if data["passed"] else "bold red")
