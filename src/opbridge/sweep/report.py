"""The report of a sweep: the results by model, the causes of failures with the models that they stop, and numbers."""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opbridge.atomic import replace_file, reported
from opbridge.errors import InputError
from opbridge.records import Record
from opbridge.report.sweep_page import render_sweep
from opbridge.sweep.rows import STATUSES, Row, read_rows

__all__ = ["Cause", "Report", "causes_of", "write_report"]


@dataclasses.dataclass(frozen=True)
class Cause(Record):
    """A cause, with the models that it stops.

    Attributes:
        run: The exporter and the engine: "opbridge on onnxruntime".
        status: The status of the models.
        cause: The cause.
        models: The models, each as "collection/model".
        alone: The number of models that have no other cause: that many would pass, or get further, without it.
        error: The error of the first model.
    """

    run: str
    status: str
    cause: str
    models: tuple[str, ...]
    alone: int
    error: str


@dataclasses.dataclass(frozen=True)
class Report(Record):
    """The report that was written.

    Attributes:
        page: The path of the page.
        rows: The number of rows.
        causes: The causes, the ones with most models first.
        table: The path of the table for analysis; empty if none was written.
    """

    page: str
    rows: int
    causes: tuple[Cause, ...]
    table: str = ""


def causes_of(rows: Sequence[Row]) -> tuple[Cause, ...]:
    """The causes of the rows that did not pass, the ones with most models first."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if not row.passed and row.counts:
            for cause in row.causes or (row.error or row.status,):
                groups.setdefault((_run(row), row.status, cause), []).append(row)
    found = [
        Cause(
            *key,
            tuple(f"{row.zoo}/{row.model}" for row in members),
            sum(len(row.causes) < 2 for row in members),
            members[0].error,
        )
        for key, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda cause: (-len(cause.models), cause.run, cause.cause)))


def write_report(folder: str | Path, page: str | Path | None = None, table: str | Path | None = None) -> Report:
    """Write the results of a folder as one HTML page that loads no other resources.

    Args:
        folder: A folder that ``opbridge sweep -o`` wrote.
        page: The file to write; ``report.html`` in the folder by default.
        table: A Parquet file to write too, with one line per row; None for none.

    Raises:
        InputError: The folder has no results, a file can't be written, or pyarrow is missing.
    """
    rows = read_rows(folder)
    if not rows:
        raise InputError(f"There are no results in {str(folder)!r}.", fix="run `opbridge sweep -o` first.")
    found = causes_of(rows)
    target = Path(folder) / "report.html" if page is None else Path(page)
    with reported(target, is_new=False):
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, render_sweep(_data(rows, found)).encode())
    if table is not None:
        _write_table(rows, Path(table))
    return Report(str(target), len(rows), found, "" if table is None else str(table))


def _run(row: Row) -> str:
    return f"{'torch.onnx' if row.exporter == 'torch' else row.exporter} on {row.engine}"


def _data(rows: Sequence[Row], found: Sequence[Cause]) -> dict[str, Any]:
    """The data that the page's script reads."""
    runs = list(dict.fromkeys(map(_run, rows)))
    models: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        models.setdefault((row.zoo, row.model), {})[_run(row)] = _cell(row)
    versions = sorted({f"{name} {version}" for row in rows for name, version in row.versions.items()})
    dates = sorted({row.date[:10] for row in rows if row.date})
    return {
        "versions": versions,
        "dates": " to ".join(dict.fromkeys([*dates[:1], *dates[-1:]])),
        "statuses": list(STATUSES),
        "totals": [_total(rows, zoo, run) for zoo in dict.fromkeys(row.zoo for row in rows) for run in runs],
        "causes": [cause.to_dict() for cause in found],
        "runs": runs,
        "models": [
            {"zoo": zoo, "model": model, "cells": [cells.get(run) for run in runs]}
            for (zoo, model), cells in sorted(models.items())
        ],
    }


def _total(rows: Sequence[Row], zoo: str, run: str) -> dict[str, Any]:
    """How the rows of a collection and a run divide over the results; models that PyTorch does not run count apart."""
    own = [row for row in rows if row.zoo == zoo and _run(row) == run]
    counts = collections.Counter(row.status for row in own)
    return {
        "zoo": zoo,
        "run": run,
        "tried": len(own),
        "counted": sum(row.counts for row in own),
        "passed": counts["pass"],
        "counts": {status: counts[status] for status in STATUSES if counts[status]},
    }


def _cell(row: Row) -> dict[str, Any]:
    data = row.to_dict()
    names = ("status", "error", "causes", "stage", "signal", "log", "cases", "tolerance_used", "run_seconds")
    seconds = {f"{stage}_seconds": row.seconds.get(stage) for stage in ("export", "verify", "all")}
    rungs = ", ".join(f"{target}: {rung}" for target, rung in sorted(row.rungs.items()))
    return {**{name: data[name] for name in (*names, "memory", "weights")}, **seconds, "rungs": rungs}


def _write_table(rows: Sequence[Row], path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("A Parquet file needs the package pyarrow.", fix="pip install --upgrade pyarrow")
    import pyarrow
    import pyarrow.parquet

    with reported(path, is_new=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([_flat(row.to_dict()) for row in rows]), path)


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose mappings are columns: one for each stage's time, and JSON for those without fixed keys."""
    flat = {f"seconds_{stage}": data["seconds"].get(stage) for stage in ("build", "export", "verify", "all")}
    texts = {name: json.dumps(data[name]) for name in ("rungs", "versions")}
    used = data["tolerance_used"]
    return {
        **{name: value for name, value in data.items() if name != "seconds"},
        **flat,
        **texts,
        "tolerance_used": None if used is None else float(used),
    }
