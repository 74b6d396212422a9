"""A conformance run as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural, table
from opbridge.report.words import conformance_words

__all__ = ["conformance_view", "page_view"]


def conformance_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``ConformanceRun.to_dict()``: a row per entry that did not pass, then the counts."""
    failed = [result for result in data["results"] if result["status"] != "pass"]
    if failed:
        rows = table("entry", "dtype", "result", "detail")
        for result in failed:
            style = "dim" if result["status"] in ("not applicable", "outside the contract") else "bold red"
            detail = ": ".join(filter(None, (result["sample"], result["error"])))
            rows.add_row(result["entry"], result["dtype"], conformance_words(result["status"]), detail, style=style)
        yield rows
        yield ""
    for dtype, counts in data["counts"].items():
        total = sum(counts.values())
        rest = ", ".join(f"{count} {conformance_words(status)}" for status, count in counts.items() if status != "pass")
        whole = f" ({data['entries']} entries in the database)" if total != data["entries"] else ""
        text = f"{dtype}: {counts.get('pass', 0)} of {total} pass{whole}{': ' + rest if rest else ''}"
        yield paragraph(text, "bold green" if data["passed"] else "bold red")
    yield paragraph(f"results: {data['file']}")


def page_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Page.to_dict()``."""
    yield paragraph(f"{data['page']}: {plural(data['entries'], 'operator')}, {plural(data['columns'], 'run')}")
