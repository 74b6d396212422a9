"""A sweep, its report and the comparison of two as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural, table

__all__ = ["diff_view", "page_view", "sweep_view"]

_MOST = 40
_QUIET = ("eager", "not applicable")


def sweep_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Sweep.to_dict()``: a line per model that did not pass, then the counts."""
    failed = [row for row in data["rows"] if row["status"] != "pass"]
    if failed:
        rows = table("model", "exporter", "engine", "result", "detail")
        for row in failed[:_MOST]:
            style = "dim" if row["status"] in _QUIET else "bold red"
            name = f"{row['zoo']}/{row['model']}"
            rows.add_row(name, row["exporter"], row["engine"], row["status"], row["error"], style=style)
        yield rows
        if len(failed) > _MOST:
            yield paragraph(
                f"and {len(failed) - _MOST} more; `opbridge sweep report {data['folder']}` shows all of them"
            )
        yield ""
    for run, counts in data["counts"].items():
        total = sum(counts.values())
        counted = total - sum(counts.get(status, 0) for status in _QUIET)
        others = ", ".join(f"{count} {name}" for name, count in counts.items() if name not in ("pass", *_QUIET))
        quiet = ", ".join(f"{counts[name]} {name}" for name in _QUIET if name in counts)
        text = f"{run}: {counts.get('pass', 0)} of {counted} pass{f' ({others})' if others else ''}"
        text += f"; not counted: {quiet}" if quiet else ""
        yield paragraph(text, "bold green" if counts.get("pass", 0) == counted else "bold red")
    yield paragraph(f"{plural(data['new'], 'new row')} in {data['seconds']:.1f} s, results: {data['folder']}")


def page_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Report.to_dict()``: the causes, the ones with most models first."""
    if data["causes"]:
        rows = table("models", "result", "run", "detail", right=("models",))
        for cause in data["causes"][:_MOST]:
            rows.add_row(str(len(cause["models"])), cause["status"], cause["run"], cause["cause"])
        yield rows
        if len(data["causes"]) > _MOST:
            yield paragraph(f"and {len(data['causes']) - _MOST} more")
        yield ""
    yield paragraph(f"{data['page']}: {plural(data['rows'], 'row')}, {plural(len(data['causes']), 'cause')}")
    if data["table"]:
        yield paragraph(data["table"])


def diff_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Difference.to_dict()``: what changed, regressions first."""
    if data["versions"]:
        yield paragraph(", ".join(data["versions"]))
    worse = {change["kind"] for change in data["regressions"]}
    if data["changes"]:
        rows = table("model", "change", "before", "after")
        for change in data["changes"]:
            style = "bold red" if change["kind"] in worse else "" if change["kind"] in ("missing", "new") else "green"
            rows.add_row(change["model"], change["kind"], change["before"], change["after"], style=style)
        yield rows
        yield ""
    count = len(data["regressions"])
    text = f"{plural(count, 'regression')} among {plural(len(data['compared']), 'model')}"
    yield paragraph(text, "bold red" if count else "bold green")
