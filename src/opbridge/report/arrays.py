"""The outputs of a run, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import number, paragraph, table

__all__ = ["arrays_view"]


def arrays_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render the result of ``opbridge run``."""
    statistics = ("min", "mean", "max")
    result = table("output", "dtype", "shape", *statistics, right=statistics)
    for output in data["outputs"]:
        shape = "x".join(str(size) for size in output["shape"]) or "scalar"
        result.add_row(output["name"], output["dtype"], shape, *(number(output.get(key, "")) for key in statistics))
    yield result
    if data["note"]:
        yield paragraph(data["note"], "yellow")
    yield paragraph(f"{data['engine']}: {data['seconds'] * 1e3:.1f} ms, written to {data['output']}")
