"""The changes made to a model, and the differences between two models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural, table

__all__ = ["difference_view", "edited_view"]

_SHOWN = 3


def edited_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Edited.to_dict()`` with the path of the written file."""
    result = table("change", "where")
    for change in data["changes"]:
        where = change["where"]
        more = f" (+{len(where) - _SHOWN})" if len(where) > _SHOWN else ""
        result.add_row(change["what"], ", ".join(where[:_SHOWN]) + more)
    yield result
    yield paragraph(f"written to {data['path']}")


def difference_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``ModelDifference.to_dict()``."""
    if data["same"]:
        yield paragraph("The two models are the same.")
        return
    result = table("kind", "where", "detail")
    for item in data["differences"]:
        result.add_row(item["kind"], item["name"], item["detail"])
    yield result
    yield paragraph(plural(len(data["differences"]), "difference"))
