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
    changes: dict[str, list[str]] = {}
    for change in data["changes"]:
        changes.setdefault(change["what"], []).extend(change["where"])
    if any(changes.values()):
        result = table("change", "where")
        for what, where in changes.items():
            more = f" (+{len(where) - _SHOWN})" if len(where) > _SHOWN else ""
            result.add_row(what, ", ".join(where[:_SHOWN]) + more)
        yield result
    else:
        yield from map(paragraph, changes)
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
