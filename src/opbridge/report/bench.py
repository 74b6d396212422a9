"""A benchmark as a table: PyTorch and each engine, with latencies, throughput and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import number, paragraph, table

__all__ = ["benchmark_view"]


def benchmark_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Benchmark.to_dict()``."""
    measured = data["measurements"]
    sizes = ", ".join(f"{spec['name']} {spec['dtype']}{spec['shape']}" for spec in data["inputs"])
    yield paragraph(f"inputs: {sizes or 'none'}")
    has_threads = any(row["threads"] is not None for row in measured)
    columns = ["threads"] * has_threads + ["median", "p90", "p99", "runs/s", "peak memory", "median / PyTorch"]
    rows = table("", *columns, right=columns)
    for row in measured:
        ratio = "" if row["ratio"] is None else number(row["ratio"])
        latencies = (_duration(row[key]) for key in ("median", "p90", "p99"))
        memory = f"{row['peak_memory'] / 1e6:,.0f} MB"
        threads = [str(row["threads"])] * has_threads
        rows.add_row(row["label"], *threads, *latencies, _rate(row["throughput"]), memory, ratio)
    yield rows
    for note in data["notes"]:
        yield paragraph(note, "dim")


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else number(per_second)


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{number(seconds * scale)} {unit}"
    return f"{number(seconds * 1e6)} µs"
