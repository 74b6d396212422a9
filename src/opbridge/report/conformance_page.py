"""Conformance results as one HTML page: a searchable table of operators and runs, with the error of each cell."""

from __future__ import annotations

import collections
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

__all__ = ["Page", "write_page"]

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
    columns = list(dict.fromkeys(_column(result) for result in results))
    rows: dict[str, dict[int, Result]] = {}
    for result in results:
        rows.setdefault(result.entry, {})[columns.index(_column(result))] = result
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        versions=html.escape(_versions(results)),
        entries=len(rows),
        data=_embedded(_data(columns, rows)),
    )
    page = Path(site) / "index.html"
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        draft = page.with_name(f".{page.name}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(page)
    except OSError as error:
        raise InputError(f"The page can't be written to {str(site)!r}: {error}", fix="name another folder.") from error
    return Page(str(page), len(rows), len(columns))


def _column(result: Result) -> str:
    way = result.way
    exporter = "torch.onnx" if way.exporter == "torch" else way.exporter
    nan = "without NaN" if way.nan == "absent" else ""
    parts = [exporter, way.engine, result.dtype, "dynamic" if way.dynamic else "", nan]
    return " · ".join([*filter(None, parts), *([f"{way.samples} samples"] if way.samples else [])])


def _versions(results: Sequence[Result]) -> str:
    versions = sorted({(name, version) for result in results for name, version in result.versions.items()})
    return ", ".join(f"{name} {version}" for name, version in versions)


def _data(columns: Sequence[str], rows: dict[str, dict[int, Result]]) -> dict[str, Any]:
    """The data that the page's script reads: the columns with their totals, and a row per entry."""
    totals = []
    for number in range(len(columns)):
        count = collections.Counter(row[number].status for row in rows.values() if number in row)
        totals.append({"name": columns[number], "passed": count["pass"], "of": sum(count.values())})
    return {
        "columns": totals,
        "rows": [
            {"entry": entry, "cells": [_cell(row[n]) if n in row else None for n in range(len(columns))]}
            for entry, row in sorted(rows.items())
        ],
    }


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
