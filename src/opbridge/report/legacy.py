"""Tables of the declarations that the bridge honoured, and of the changes of a migration."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural, table, unbroken

__all__ = ["migration_view", "script_view"]


def script_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``ScriptRun.to_dict()``."""
    if not data["bridged"]:
        yield paragraph("Nothing was bridged: the script does not use any old declaration.", "bold yellow")
        return
    result = table("bridged", "kind", "uses", "where", right=("uses",))
    for item in data["bridged"]:
        result.add_row(item["name"], item["kind"], str(item["count"]), item["source"])
    yield result
    for item in data["bridged"]:
        for note in item["notes"]:
            yield paragraph(f"{item['name']}: {note}")
    for node in data["custom_nodes"]:
        file, operator = node["file"], node["operator"]
        yield paragraph(
            f"{file}: no engine has a kernel for {operator}. To run the file in ONNX Runtime, write a function of "
            f"torch operators that computes it in ops.py, decorate it with @opbridge.body_for({operator!r}), and run:"
        )
        attached = f"{file.removesuffix('.onnx')}_with_bodies.onnx"
        yield unbroken(f"  {shlex.join(['opbridge', 'attach', file, '--ops', 'ops.py', '-o', attached])}")
    yield paragraph(f"{plural(len(data['bridged']), 'old declaration')} bridged", "bold green")


def migration_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Migration.to_dict()`` of a file that was written."""
    for key, title in (("converted", "converted"), ("not_run", "rewritten, not run"), ("left", "left unchanged")):
        if data[key]:
            result = table("line", title, "detail", right=("line",))
            for item in data[key]:
                result.add_row(str(item["line"]), item["name"], item["detail"])
            yield result
    for text in (data["reason"] and f"Not run: {data['reason']}.", data["way_out"]):
        if text:
            yield paragraph(text)
    if data["problem"]:
        yield paragraph(f"The new source is not right, and was not written: {data['problem']}.", "bold red")
    # The counts come first so that a long path does not wrap them.
    counts = f"{len(data['converted'])} converted, {len(data['not_run'])} not run, {len(data['left'])} left unchanged"
    yield paragraph(f"{counts}: {data['file']}", "bold")
