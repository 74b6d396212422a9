"""The result of a reduction in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural

__all__ = ["reduction_view"]

_KINDS = {
    "results": "wrong results",
    "mapping": "a wrong mapping to ONNX",
    "crash": "a crash",
    "hang": "a hang",
    "memory": "out of memory",
    "error": "an error",
    "export": "export fails",
    "capture": "capture fails",
}


def reduction_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Reduction.to_dict()``."""
    yield paragraph(f"{data['engine']}, {_KINDS[data['kind']]}: {data['message']}")
    unit = {"export": "call", "capture": "module"}.get(data["kind"], "node")
    left = f"{plural(data['nodes'], unit)} of {data['nodes_before']} left: {', '.join(data['operators'])}"
    yield paragraph(f"{left} ({plural(data['tries'], 'try').replace('trys', 'tries')}, {data['seconds']:.0f} s)")
    if not data["finished"]:
        yield paragraph("The search hit its time limit; a higher --time-limit may find a smaller model.", "yellow")
    files = ", ".join(data["files"])
    yield paragraph(f"written to {data['folder']}: {files}", "bold green" if data["reproduces"] else "")
    if not data["reproduces"]:
        yield paragraph("The script does not reproduce the failure on its own; opbridge does.", "yellow")
