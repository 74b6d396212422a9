"""What the benchmarks share: one table of measured numbers and their targets, the same as JSON, and the exit code."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

__all__ = ["Measured", "finish", "verdict"]


class Measured(Protocol):
    """A row of a benchmark, a frozen dataclass of any fields."""

    @property
    def holds(self) -> bool: ...


def verdict(row: Measured) -> str:
    """Whether a row's target holds, for the table."""
    return "yes" if row.holds else "[bold red]no"


def finish(
    rows: Sequence[Measured],
    cells: Sequence[tuple[str, Sequence[str]]],
    *,
    packages: Sequence[str],
    runs: int,
    json_file: Path | None,
    note: str = "",
) -> int:
    """Print the table and write the JSON.

    Args:
        rows: What was measured.
        cells: The table: each column's heading and its cells, one per row.
        packages: Those whose versions belong to the result.
        runs: As asked for.
        json_file: Where the numbers are written too.
        note: A line under the table.

    Returns:
        The exit code: 0 if every target holds.
    """
    table = Table(*(heading for heading, _ in cells))
    for texts in zip(*(column for _, column in cells), strict=True):
        table.add_row(*texts)
    console = Console(width=110)
    console.print(table)
    if note:
        console.print(note)
    machine = _machine(packages)
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()))
    if json_file:
        found = [{**dataclasses.asdict(row), "holds": row.holds} for row in rows]  # type: ignore[call-overload]
        json_file.write_text(json.dumps({"machine": machine, "runs": runs, "rows": found}, indent=2))
    return 0 if all(row.holds for row in rows) else 1


def _machine(packages: Sequence[str]) -> dict[str, Any]:
    versions = {name: importlib.metadata.version(name) for name in packages}
    processor = platform.processor() or platform.machine()
    return {"cores": os.cpu_count(), "processor": processor, "python": platform.python_version(), **versions}
