"""The operators of a model with the rung of each: in a sentence, or in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import place, plural, table

__all__ = ["NOTABLE", "operators_view", "rungs"]

NOTABLE = ("converted-control-flow", "no-compiler")
"""The findings that are shown although they need no action: what the model has that its source has not, or lacks."""

_LINK = {True: "yes", False: "NO", None: "?"}
_NATIVE = ("native", "opset")


def rungs(operators: Sequence[Mapping[str, Any]]) -> str:
    """``"8 of 17 operators use mappings of opbridge or of your own (-v lists them)"``."""
    own = sum(operator["rung"] not in _NATIVE for operator in operators)
    count = plural(len(operators), "operator")
    if not own:
        return f"{count}, all mapped by torch.onnx (-v lists them)"
    use = "uses a mapping" if own == 1 else "use mappings"
    return f"{own} of {count} {use} of opbridge or of your own (-v lists them)"


def operators_view(operators: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table with one row per operator, with its links if they are known."""
    links = ("torch", "mapping", "kernel") if any("links" in operator for operator in operators) else ()
    result = table("operator", "rung", "provided by", "count", *links, "where", right=("count",))
    for operator in operators:
        shown = [_LINK[operator["links"].get(link)] for link in links]
        cells = (operator["target"], operator["rung"], operator["provider"], str(operator["count"]))
        result.add_row(*cells, *shown, place(operator["sources"]))
    result.caption = None if operators else plural(0, "operator")
    return result
