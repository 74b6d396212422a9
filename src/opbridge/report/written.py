"""Writes the report of a bundle to a file: HTML, Markdown for the summary of a CI job, or JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opbridge.atomic import replace_file
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.checks import REPORT
from opbridge.bundle.write import write_side_file
from opbridge.errors import InputError
from opbridge.report.junit import render_junit
from opbridge.report.markdown import render_markdown
from opbridge.report.page import render_page

__all__ = ["FORMATS", "render", "write_report"]

FORMATS = ("html", "markdown", "junit")


def render(bundle: Bundle, form: str = "html") -> str:
    """Render the report of a bundle from the bundle's files.

    Args:
        bundle: The bundle.
        form: The format, one of :data:`FORMATS`.

    Raises:
        InputError: A side file can't be read, or has unexpected content.
    """
    renderers: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "html": render_page,
        "markdown": render_markdown,
        "junit": render_junit,
    }
    data = bundle.to_dict()
    try:
        return renderers[form](data)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"verification.json or sources.json of {bundle.path} was not written by opbridge, or was changed "
            f"({type(error).__name__}: {error}).",
            fix="verify the bundle again, or export it again.",
        ) from error


def write_report(bundle: Bundle, form: str = "html", path: str | Path | None = None) -> Path:
    """Write the report atomically.

    Args:
        bundle: The bundle.
        form: The format, one of :data:`FORMATS`.
        path: The file to write; None for ``report.html`` in the bundle.

    Raises:
        InputError: The report can't be rendered (see :func:`render`), or the file can't be written.
    """
    text = render(bundle, form)
    if path is None:
        write_side_file(bundle, REPORT, text)
        return bundle.path / REPORT
    target = Path(path)
    try:
        replace_file(target, text.encode(errors="replace"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"The report can't be written to {target}: {reason}.", fix="name another file with -o."
        ) from error
    return target
