"""What a reduction came to, in a few lines."""

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
    "memory": "memory runs out",
    "error": "an error",
    "export": "no export",
    "capture": "no capture",
}


def reduction_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Reduction.to_dict()``."""
    yield paragraph(f"{data['engine']}, {_KINDS[data['kind']]}: {data['message']}")
    unit = {"export": "call", "capture": "module"}.get(data["kind"], "node")
    left = f"{plural(data['nodes'], unit)} of {data['nodes_before']} left: {', '.join(data['operators'])}"
    yield paragraph(f"{left} ({plural(data['tries'], 'try').replace('trys', 'tries')}, {data['seconds']:.0f} s)")
    if not data["finished"]:
        yield paragraph("The time limit ended the search: --time-limit gives it more.", "yellow")
    files = ", ".join(data["files"])
    yield paragraph(f"written to {data['folder']}: {files}", "bold green" if data["reproduces"] else "")
    if not data["reproduces"]:
        yield paragraph("The script, run by itself, does not show the fault; the model does, as tried here.", "yellow")
