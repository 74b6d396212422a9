"""The catalog as a table, and one operator with all its mappings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding

from opbridge.report.tables import paragraph, plural, table

__all__ = ["catalog_view", "operator_view"]


def catalog_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``{"operators": [mapping, ...]}``."""
    result = table("target", "rung", "opset", "provided by", "summary", "file", right=("opset",))
    for mapping in data["operators"]:
        keys = ("target", "rung", "opset", "provider", "summary", "source")
        result.add_row(*(str(mapping[key]) for key in keys))
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
