"""What it costs to run an engine in a child process.

    python benchmarks/isolation.py [--engines onnxruntime,openvino] [--runs 200] [--json FILE]

The start of a session, against the time that a bare Python needs to import the engine and load the same model (target:
at most 1 s more). A run of one small node through the pipe, against the same run in this process (target: at most 1 ms
more), and one whose input and output have 64 MB each (target: at most 2 ns more for each byte that goes through).
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
from _table import finish, verdict

from opbridge import engines, load
from opbridge.engines.base import Session
from opbridge.engines.process.isolation import IsolatedSession

START_TARGET = 1.0
RUN_TARGET = 1e-3
BYTE_TARGET = 2e-9
SMALL, LARGE = 256, 16_000_000

BARE = """
import sys, time
started = time.perf_counter()
import importlib, pathlib
from opbridge import engines
engines.get(sys.argv[1]).load(pathlib.Path(sys.argv[2]), threads=1)
print(time.perf_counter() - started)
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        engine: The engine.
        what: What was timed.
        alone: Seconds without a child process.
        isolated: Seconds with one.
        target: How much more it may be.
    """

    engine: str
    what: str
    alone: float
    isolated: float
    target: float

    @property
    def more(self) -> float:
        """What the child process costs, in seconds."""
        return self.isolated - self.alone

    @property
    def holds(self) -> bool:
        """Whether the target holds."""
        return self.more <= self.target


def measure(engine: str, runs: int, folder: Path) -> list[Row]:
    """The rows of one engine."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    specs = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])] for name in ("x", "y")]
    graph = helper.make_graph([relu], "relu", *specs)
    path = folder / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    starts = max(3, runs // 40)
    rows = [
        Row(engine, "start", median(starts, lambda: bare(engine, path)), started(engine, path, starts), START_TARGET)
    ]
    alone = load(path, engine, threads=1)
    with IsolatedSession(engine, path, threads=1) as isolated:
        for size, target in ((SMALL, RUN_TARGET), (LARGE, BYTE_TARGET * 8 * LARGE)):
            count = runs if size == SMALL else max(3, runs // 40)
            what = f"run, {4 * size / 1e3:g} kB each way"
            rows.append(Row(engine, what, timed(alone, size, count), timed(isolated, size, count), target))
    return rows


def bare(engine: str, path: Path) -> float:
    """Seconds from a bare Python to a loaded model, without the interpreter's own start."""
    done = subprocess.run([sys.executable, "-c", BARE, engine, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def started(engine: str, path: Path, count: int) -> float:
    """Seconds from nothing to an isolated session."""

    def start() -> float:
        begin = time.perf_counter()
        with IsolatedSession(engine, path, threads=1):
            return time.perf_counter() - begin

    return median(count, start)


def timed(session: Session, size: int, count: int) -> float:
    """Seconds of a run."""
    x = np.random.default_rng(0).standard_normal(size, np.float32)

    def run() -> float:
        begin = time.perf_counter()
        session.run({"x": x})
        return time.perf_counter() - begin

    run()
    return median(count, run)


def median(count: int, measured: Callable[[], float]) -> float:
    """The median of so many measurements."""
    return statistics.median(measured() for _ in range(count))


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="onnxruntime,openvino", help="those that are not installed are left out")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    installed = [name for name in arguments.engines.split(",") if engines.get(name).is_installed()]
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in installed for row in measure(name, arguments.runs, Path(folder))]
    cells = [
        ("engine", [row.engine for row in rows]),
        ("what", [row.what for row in rows]),
        ("in this process, ms", [f"{1e3 * row.alone:.2f}" for row in rows]),
        ("isolated, ms", [f"{1e3 * row.isolated:.2f}" for row in rows]),
        ("more, ms", [f"{1e3 * row.more:.2f}" for row in rows]),
        ("at most, ms", [f"{1e3 * row.target:g}" for row in rows]),
        ("holds", [verdict(row) for row in rows]),
    ]
    return finish(
        rows,
        cells,
        packages=["opbridge", *(engines.get(name).package for name in installed), "numpy"],
        runs=arguments.runs,
        json_file=arguments.json,
    )


if __name__ == "__main__":
    sys.exit(main())
