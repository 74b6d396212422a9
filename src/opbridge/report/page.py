"""A bundle's report as one HTML page, made from the bundle's files. The page loads no other resources."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from opbridge.records import printable
from opbridge.report.page_data import page_data
from opbridge.report.page_words import summarise

__all__ = ["embedded", "part", "render_page"]

_PARTS = Path(__file__).parent
_SCRIPTS = ("page_base.js", "page_plot.js", "page_sections.js")
_MARKS = {"good": "✓", "bad": "✕", "open": "?"}


def render_page(data: Mapping[str, Any]) -> str:
    """The page of ``Bundle.to_dict()``.

    The verdict is text in the page; a script draws the tables and plots from data embedded in the page. Names of
    operators, tensors and files are inserted as text, so that none of them can become markup or hide other text.
    """
    data = printable(data)
    summary = summarise(data)
    sentences = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in summary.sentences)
    return Template(part("page.html")).substitute(
        title=html.escape(summary.title),
        name=html.escape(_name(data)),
        tone=summary.tone,
        mark=_MARKS[summary.tone],
        sentences=sentences,
        opbridge=html.escape(str(data["manifest"]["opbridge"])),
        style=part("page.css"),
        data=embedded(page_data(data, summary)),
        script="\n".join(part(name) for name in _SCRIPTS),
    )


def part(name: str) -> str:
    """The text of a file that pages are made of: a template, a style, a script."""
    return (_PARTS / name).read_text(encoding="utf-8")


def _name(data: Mapping[str, Any]) -> str:
    return str(data["manifest"].get("entry") or data["path"]).rpartition("/")[2]


def embedded(data: Any) -> str:
    """JSON for a script element: ASCII without ``<``, so that it can't end the element or begin a tag."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
