"""Helpers shared by the views: the style of tables, and the format of numbers and source lines."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from opbridge.records import rounded

__all__ = ["as_html", "number", "paragraph", "place", "plural", "table", "unbroken"]

_NARROW = 12
"""The width, in characters, to which a long column may shrink."""
_LONG = ("after", "before", "detail", "file", "provided by", "summary", "where")


class _Table(Table):
    """A table that is wider than a narrow screen rather than cut off: only long columns wrap."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns, cells, strict=False):
            width = max(cell_len(str(text or "")) for text in (column.header, cell))
            column.min_width = max(column.min_width or 0, width if column.no_wrap else min(width, _NARROW))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table. On a narrow screen long columns wrap; the columns named in ``right`` are right-aligned."""
    result = _Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        result.add_column(column, justify=justify, overflow="fold", no_wrap=column not in _LONG)
    return result


def number(value: Any) -> str:
    """The number as :func:`~opbridge.records.rounded` writes it; strings that stand for non-finite values unchanged."""
    return rounded(value) if isinstance(value, int | float) else str(value)


def place(sources: Sequence[str] | None) -> str:
    """The first source line and the number of further ones: ``"model.py:3 (+2)"``."""
    if not sources:
        return ""
    return sources[0] + (f" (+{len(sources) - 1})" if len(sources) > 1 else "")


def plural(count: int, noun: str) -> str:
    """``1 output``, ``2 outputs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def unbroken(text: str, style: str = "") -> Text:
    """A line that is never wrapped, such as a path to copy."""
    return Text(text, style=style, no_wrap=True)


def paragraph(text: str, style: str = "") -> Text:
    """Text without markup."""
    return Text(text, style=style)


def as_html(renderables: Iterable[RenderableType]) -> str:
    """What a terminal shows, for a notebook: without colours, because its background is light or dark."""
    printed = io.StringIO()
    # In Jupyter a console would display its text as well, and Jupyter sets FORCE_COLOR.
    console = Console(
        width=140,
        file=printed,
        markup=False,
        highlight=False,
        emoji=False,
        color_system=None,
        force_jupyter=False,
    )
    for renderable in renderables:
        console.print(renderable)
    text = "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
    return f'<pre style="font-family: monospace; white-space: pre; overflow-x: auto">{html.escape(text)}</pre>'
