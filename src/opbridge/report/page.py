"""A bundle's report as one page of HTML, made of the bundle's own files: it loads nothing, and works from a file."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from opbridge.report.page_data import page_data
from opbridge.report.page_words import summarise

__all__ = ["render_page"]

_PARTS = Path(__file__).parent
_SCRIPTS = ("page_base.js", "page_plot.js", "page_sections.js")
_MARKS = {"good": "✓", "bad": "✕", "open": "?"}


def render_page(data: Mapping[str, Any]) -> str:
    """The page of ``Bundle.to_dict()``.

    The verdict is text of the page; tables and plots are drawn by its script from data that stands in it. Names of
    operators, tensors and files are written as text only, so that none of them can become markup.
    """
    summary = summarise(data)
    sentences = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in summary.sentences)
    return Template(_part("page.html")).substitute(
        title=html.escape(summary.title),
        name=html.escape(_name(data)),
        tone=summary.tone,
        mark=_MARKS[summary.tone],
        sentences=sentences,
        opbridge=html.escape(str(data["manifest"]["opbridge"])),
        style=_part("page.css"),
        data=_embedded(page_data(data, summary)),
        script="\n".join(_part(name) for name in _SCRIPTS),
    )


def _part(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")


def _name(data: Mapping[str, Any]) -> str:
    return str(data["manifest"].get("entry") or Path(data["path"]).name)


def _embedded(data: Any) -> str:
    """JSON that can stand in a script element: ASCII, in which no character begins a tag or ends the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
