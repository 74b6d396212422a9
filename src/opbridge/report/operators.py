"""The catalog as a table, and one operator with all its mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding

from opbridge.report.tables import paragraph, plural, table

__all__ = ["catalog_view", "operator_view"]

_WIDEST_TARGET = 48
"""The width of the column of targets; the path of a function in a library can be longer."""


def catalog_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``{"operators": [mapping, ...]}``: the user's own with their files, which are long."""
    own = [mapping for mapping in data["operators"] if mapping["provider"] == "user"]
    result = table("target", "rung", "opset", *(["file"] if own else []), "summary", right=("opset",))
    result.columns[0].no_wrap, result.columns[0].max_width = False, _WIDEST_TARGET
    for mapping in data["operators"]:
        file = [mapping["source"] if mapping in own else "catalog"] if own else []
        result.add_row(mapping["target"], mapping["rung"], str(mapping["opset"]), *file, mapping["summary"])
    yield result
    yield paragraph(plural(len(data["operators"]), "mapping"))


def operator_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``KnownOperator.to_dict()``."""
    yield paragraph(data["target"], "bold")
    if data["overloads"]:
        yield paragraph(f"overloads in torch: {', '.join(data['overloads'])}")
    if not data["mappings"]:
        yield paragraph("no mapping to ONNX in torch.onnx or in opbridge", "bold yellow")
        return
    result = table("provided by", "rung", "opset", "target", "file", right=("opset",))
    for mapping in data["mappings"]:
        keys = ("provider", "rung", "opset", "target", "source")
        result.add_row(*("" if mapping[key] is None else str(mapping[key]) for key in keys))
    yield result
    for mapping in data["mappings"]:
        if mapping["overrides"]:
            yield paragraph(f"\nreplaces the mapping of torch.onnx: {mapping['overrides']}")
        if mapping["docstring"]:
            yield paragraph(f"\n{mapping['provider']}, {mapping['rung']}:", "bold")
            yield Padding(paragraph(mapping["docstring"]), (0, 0, 0, 2), expand=False)
