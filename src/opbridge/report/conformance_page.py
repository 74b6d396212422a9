"""Conformance results as one HTML page: totals by run and by family of operators, and a table of all operators."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from opbridge.errors import InputError
from opbridge.proof.conformance.results import Result, latest, read_results
from opbridge.records import Record
from opbridge.report.tables import plural

__all__ = ["Page", "write_page"]

_FAMILIES = ("nn.functional", "linalg", "fft", "special", "masked", "signal.windows")
"""The modules whose operators are a family of their own; all others are the family ``torch``."""
_TEMPLATE = Path(__file__).with_name("conformance_page.html")


@dataclasses.dataclass(frozen=True)
class Page(Record):
    """The page that was written.

    Attributes:
        page: The path of the page.
        entries: The number of rows.
        columns: The number of columns, one per run and element type.
    """

    page: str
    entries: int
    columns: int


def write_page(files: Sequence[str | Path], site: str | Path) -> Page:
    """Write the results of files to ``index.html`` in a folder: one file that loads no other resources.

    Args:
        files: The files that ``opbridge conformance -o`` wrote. A later result replaces an earlier one of the same
            entry and run.
        site: The folder; it is created if it does not exist.

    Raises:
        InputError: A file contains no results, or the folder can't be written.
    """
    results = latest(result for file in files for result in read_results(Path(file)))
    if not results:
        raise InputError(
            f"There are no results in {', '.join(map(str, files))}.", fix="run `opbridge conformance -o` first."
        )
    columns: dict[str, list[Result]] = {}
    for result in results:
        columns.setdefault(_column(result), []).append(result)
    entries = len({result.entry for result in results})
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        versions=html.escape(_versions(results)),
        entries=entries,
        data=_embedded(_data(list(columns.values()))),
    )
    page = Path(site) / "index.html"
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        draft = page.with_name(f".{page.name}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(page)
    except OSError as error:
        raise InputError(f"The page can't be written to {str(site)!r}: {error}", fix="name another folder.") from error
    return Page(str(page), entries, len(columns))


def _column(result: Result) -> str:
    way = result.way
    exporter = "torch.onnx" if way.exporter == "torch" else way.exporter
    nan = "without NaN" if way.nan == "absent" else ""
    parts = [exporter, way.engine, result.dtype, "dynamic" if way.dynamic else "", nan]
    return " · ".join([*filter(None, parts), *([plural(way.samples, "sample")] if way.samples else [])])


def _versions(results: Sequence[Result]) -> str:
    versions = sorted({(name, version) for result in results for name, version in result.versions.items()})
    return ", ".join(f"{name} {version}" for name, version in versions)


def _data(columns: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """The data that the page's script reads: the runs, which are the columns; the rows; and which runs are compared."""
    cells: dict[str, dict[int, Result]] = {}
    for number, results in enumerate(columns):
        for result in results:
            cells.setdefault(result.entry, {})[number] = result
    return {
        "columns": [{"name": _column(results[0]), "dates": _dates(results)} for results in columns],
        "pairs": _pairs(columns),
        "families": [*_FAMILIES, "torch"],
        "rows": [
            {
                "entry": entry,
                "family": next((name for name in _FAMILIES if entry.startswith(f"{name}.")), "torch"),
                "cells": [_cell(row[number]) if number in row else None for number in range(len(columns))],
            }
            for entry, row in sorted(cells.items())
        ],
    }


def _dates(results: Sequence[Result]) -> str:
    """The days of a run: ``"2026-11-23"``, ``"2026-11-20 to 2026-11-23"``."""
    dates = sorted({result.date for result in results} - {""})
    return " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]]))


def _pairs(columns: Sequence[Sequence[Result]]) -> list[list[int]]:
    """Each run of opbridge with the run of torch.onnx in the same engine, element type and options, as positions."""

    def key(result: Result, exporter: str) -> tuple[Any, ...]:
        way = dataclasses.replace(result.way, exporter=exporter)
        return (result.dtype, *dataclasses.astuple(way))

    places = {key(results[0], results[0].way.exporter): number for number, results in enumerate(columns)}
    return [
        [number, places[key(results[0], "torch")]]
        for number, results in enumerate(columns)
        if results[0].way.exporter == "opbridge" and key(results[0], "torch") in places
    ]


def _cell(result: Result) -> dict[str, Any]:
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    rungs = ", ".join(f"{target}: {rung}" for target, rung in sorted(result.rungs.items()))
    return {
        "status": result.status,
        "error": result.error,
        "sample": result.sample,
        "counts": counts,
        "rungs": rungs,
        "seconds": round(sum(result.seconds.values()), 2),
    }


def _embedded(data: Any) -> str:
    """JSON for a script element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
