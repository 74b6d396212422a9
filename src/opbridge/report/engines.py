"""The engines as a table, and as the Markdown table in docs/engines.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, table, unbroken

__all__ = ["engines_markdown", "engines_view"]

_COLUMNS = (
    *("engine", "version", "runs here", "function bodies", "C++ kernels", "Python-written kernels"),
    *("support query", "without Python"),
)


def engines_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``{"engines": [KnownEngine.to_dict(), ...]}``."""
    result = table(*_COLUMNS)
    for engine in data["engines"]:
        result.add_row(*_row(engine), style="" if engine["runs"] else "yellow")
    yield result
    for engine in data["engines"]:
        if engine["version"] is None:
            yield paragraph(f"{engine['name']} is {engine['status']}: {engine['install']}", "bold")
        elif engine["detail"]:
            yield paragraph(f"{engine['name']}: {engine['status']}. {engine['detail']}")


def engines_markdown(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """The same table in Markdown."""
    yield unbroken(f"| {' | '.join(_COLUMNS)} |")
    yield unbroken(f"|{'---|' * len(_COLUMNS)}")
    for engine in data["engines"]:
        name, *others = _row(engine)
        yield unbroken(f"| {' | '.join([f'`{name}`', *others])} |")


def _row(engine: Mapping[str, Any]) -> list[str]:
    if engine["version"] is None:
        return [engine["name"], engine["status"], *[""] * (len(_COLUMNS) - 2)]
    words = {"C++": "yes", "ctypes": "through ctypes", None: "no"}
    kernels, written = words[engine["kernels"]], words[engine["python_kernels"]]
    runs = "yes" if engine["runs"] else engine["status"]
    abilities = [engine["function_bodies"], engine["support_query"], engine["without_python"]]
    bodies, query, free = ("yes" if ability else "no" for ability in abilities)
    return [engine["name"], engine["version"], runs, bodies, kernels, written, query, free]
