"""The report of a sweep as one HTML page. The page loads no other resources."""

from __future__ import annotations

import html
from collections.abc import Mapping
from string import Template
from typing import Any

from opbridge.report.page import embedded, part
from opbridge.version import __version__

__all__ = ["render_sweep"]


def render_sweep(data: Mapping[str, Any]) -> str:
    """The page of the data of a sweep's report.

    The totals are text in the page; a script draws the tables and plots from data embedded in the page.
    """
    sentences = [
        f"{total['zoo']}, {total['run']}: {total['passed']} of {total['counted']} pass"
        + (f", and {total['tried'] - total['counted']} not counted." if total["tried"] > total["counted"] else ".")
        for total in data["totals"]
        if total["tried"]
    ]
    return Template(part("sweep_page.html")).substitute(
        sentences="\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences),
        made=html.escape(", ".join(filter(None, [data["dates"], *data["versions"]]))),
        opbridge=html.escape(__version__),
        style=part("page.css"),
        data=embedded(data),
        script=part("page_base.js") + "\n" + part("sweep_page.js"),
    )
