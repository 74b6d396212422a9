"""What the views of this package share: the style of a table, and how numbers and places are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

__all__ = ["number", "paragraph", "place", "plural", "table", "unbroken"]

_LONG = ("detail", "file", "provided by", "summary", "where")


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table. On a narrow screen the long columns fold, and no text is lost; ``right`` names number columns."""
    result = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        result.add_column(column, justify=justify, overflow="fold", no_wrap=column not in _LONG)
    return result


def number(value: Any) -> str:
    """Three significant digits; JSON's strings for values that are not finite stay."""
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def place(sources: Sequence[str] | None) -> str:
    """The first of several source lines, and how many more there are."""
    if not sources:
        return ""
    return sources[0] + (f" (+{len(sources) - 1})" if len(sources) > 1 else "")


def plural(count: int, noun: str) -> str:
    """``1 output``, ``2 outputs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def unbroken(text: str, style: str = "") -> Text:
    """A line that is printed as one, such as a path that is to be copied."""
    return Text(text, style=style, no_wrap=True)


def paragraph(text: str, style: str = "") -> Text:
    """Text that is printed as it is."""
    return Text(text, style=style)
