"""Operators of detection models in every engine, beside PyTorch: errors and times, as a Markdown table.

    python benchmarks/vision.py [--op nms,knn] [--runs 5] [--json FILE] [--markdown docs/vision-speed.md]

Each operator of ``opbridge.vision`` and each that torchvision registers is exported for each installed engine, at the
sizes of ``cases_of_vision.py``, and runs there on one thread and on two. PyTorch's side is torchvision's operator for
the CPU, or the definition of ``opbridge.vision`` in torch operators, without its kernel. All sides run in one process
in turns, and the best run of each counts, in the time of the clock. A ratio below 1 means that the engine is faster.

The error is the largest share of the tolerance (``docs/verification.md``) that a result uses; the reference is PyTorch
in float64. Where that comparison fails, the verifier decides, which knows near ties. A row holds if ONNX Runtime is
right in both ways, and no other engine is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from cases_of_vision import CASES, Case
from catalog import timed

from opbridge.capture.capture import Captured, capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines import get
from opbridge.engines.base import Session
from opbridge.errors import OpbridgeError
from opbridge.proof.conformance.calls import Batch, Call
from opbridge.proof.conformance.exporters import Exported, Failure, by_opbridge
from opbridge.proof.verify.compare import error_units, floor_units, is_floating, judge
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verify import verify
from opbridge.torch_graph.silence import silenced

ENGINES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "ncnn": "ncnn", "tvm": "TVM"}
THREADS = (1, 2)
PYTORCH = "PyTorch"
NEAR_TIES = "near ties"
COLUMNS = ("ONNX Runtime, body", "ONNX Runtime, kernel", "OpenVINO", "ncnn", "TVM")
PACKAGES = ("torch", "torchvision", "onnxruntime", "openvino", "ncnn", "apache-tvm")
REASONS = {
    r"allocate memory|bad_alloc|out of memory": "out of memory",
    "divides by the number of samples": "refused: divides by zero",
    r"the size '\w+' of a result": "no sizes that depend on the data",
    r"has no layer (?:pnnx\.Expression|Tensor\.to)": "no layer for a part of it",
    r"has rank \d, and ncnn": "no tensors of its rank",
    r"pnnx can't convert": "pnnx does not convert it",
    r"can't compile|has no converter|refuses": "does not compile",
}
"""What a refusal says, and the same in a few words."""

HEAD = """# Operators of detection models: errors and times

`python benchmarks/vision.py --rows FILE --markdown docs/vision-speed.md` exports each operator at the size that it has
in a known model: proposals of COCO, boxes of DOTA, Deformable DETR with four levels and 300 queries, scans of nuScenes.

A cell has the best run's time on one thread and on two, over PyTorch's in the same process, the sides in turns; below 1
the engine is faster. In brackets is the share of the tolerance ([verification](verification.md)) that the largest error
uses, measured against PyTorch in float64; "near ties": a value beyond it that the verifier accepts, because PyTorch's
own result moves as far when its inputs are rounded. PyTorch is torchvision's operator for the CPU, or the definition of
`opbridge.vision` in torch operators without its kernel. The machine did other work at the same time: only ratios count,
and single ones can be off by a factor of two, on two threads of five.
"Body" is what an engine without the kernel runs; OpenVINO, ncnn and TVM run the kernel, or an operator of their own.
The kernel's cell is empty where there is none. "**wrong**": some results are beyond the tolerance; the verification of
an export finds it. "Does not compile": TVM's compiler refuses the nodes.
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One operator in one column of the table: an engine, with or without kernels.

    Attributes:
        operator: The name of the case.
        column: The engine.
        error: The largest share of the tolerance that a result uses; None if the engine did not run the model.
        ratios: The times over PyTorch's, by threads.
        milliseconds: PyTorch's times, by threads.
        reason: Why it did not run, or what is wrong.
    """

    operator: str
    column: str
    error: float | None = None
    ratios: tuple[float, ...] = ()
    milliseconds: tuple[float, ...] = ()
    reason: str = ""

    @property
    def holds(self) -> bool:
        return self.error is None or self.error <= 1


class Sides:
    """One operator in all engines."""

    def __init__(self, case: Case, catalog: Catalog, folder: Path, engines: Sequence[str]) -> None:
        torch.manual_seed(0)
        self.call = Call(case.function, case.make(), {})
        self._catalog, self._folder = catalog, folder
        feeds = tuple(tensor.clone() for tensor in self.call.tensors)
        self._captured: Captured = capture(Batch([self.call]), feeds, rewrites=catalog.rewrites())
        arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in feeds]
        self._feeds = dict(zip(self._captured.input_names, arrays, strict=True))
        self.reasons: dict[str, str] = {}
        self._exported = dict(self._exports(engines))
        wide = [x.double() if x.is_floating_point() else x for x in self.call.tensors]
        with without_kernels():
            self._own, self._reference = (
                [x.numpy() for x in call()] for call in (self.call, self.call.with_tensors(wide))
            )

    def _exports(self, engines: Sequence[str]) -> Iterator[tuple[str, tuple[str, Path, tuple[Path, ...]]]]:
        """For each column, the engine, the model, and the libraries."""
        for engine in engines:
            folder = self._folder / engine
            folder.mkdir()
            try:
                exported = by_opbridge(self._captured, get(engine), folder, self._catalog)
            except (Failure, OpbridgeError) as error:
                self.reasons[ENGINES[engine]] = short(str(error))
                continue
            for libraries in exported.libraries:
                yield column_of(engine, exported, libraries), (engine, exported.path, libraries)

    def sessions(self, threads: int) -> dict[str, Session]:
        """The engines that load the model; why the others do not is in ``reasons``."""
        found = {}
        for column, (engine, path, libraries) in self._exported.items():
            try:
                session = get(engine).load(path, threads=threads, libraries=libraries)
                session.run(self._feeds)
            except (OpbridgeError, MemoryError) as error:
                self.reasons[column] = short(str(error) or "out of memory")
            else:
                found[column] = session
        return found

    def runs(self, sessions: Mapping[str, Session]) -> dict[str, Callable[[], object]]:
        return {name: functools.partial(session.run, self._feeds) for name, session in sessions.items()}

    def error(self, session: Session, engine: str) -> tuple[float, str]:
        """The share of the tolerance, and what it is made of if it is not that of the comparison."""
        results = session.run(self._feeds)
        found = list(results.values())
        if len(found) == len(self._own):
            share = max(map(share_of_tolerance, found, self._own, self._reference))
            if share <= 1:
                return share, ""
        options = VerifyOptions(inputs=[self._feeds], nan=self._catalog.nan)
        with silenced():
            judged = verify(CapturedReference(self._captured), session, engine=engine, options=options)
        if judged.passed:
            return 1.0, NEAR_TIES
        failed = [str(comparison) for comparison in judged.comparisons if not comparison.passed]
        return np.inf, short(judged.error or "; ".join(failed))

    def engine_of(self, column: str) -> str:
        return self._exported[column][0]


def share_of_tolerance(found: np.ndarray, own: np.ndarray, reference: np.ndarray) -> float:
    """How much of the tolerance a result uses; infinite if it has other sizes, or other integers."""
    if found.shape != own.shape or found.shape != reference.shape:
        return np.inf
    if not is_floating(own.dtype):
        return 0.0 if np.array_equal(found, own) else np.inf
    wide = [array.astype(np.float64) for array in (found, own)]
    errors = [error_units(array, wide[1], reference, own.dtype) for array in wide]
    return judge(errors[0], errors[1:], floor_units(own.dtype)).ratio


def column_of(engine: str, exported: Exported, libraries: Sequence[Path]) -> str:
    if engine != "onnxruntime":
        return ENGINES[engine]
    return f"{ENGINES[engine]}, {'kernel' if libraries else 'body'}"


def short(text: str) -> str:
    return " ".join(text.split())[:200]


def measure(case: Case, catalog: Catalog, engines: Sequence[str], runs: int) -> list[Row]:
    """Export one operator, and run all sides in turns, for each number of threads."""
    ratios: dict[str, list[float]] = {}
    errors: dict[str, tuple[float, str]] = {}
    milliseconds = []
    with torch.no_grad(), contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with silenced():
            sides = Sides(case, catalog, folder, engines)
        stack.enter_context(without_kernels())
        for threads in THREADS:
            torch.set_num_threads(threads)
            sessions = sides.sessions(threads)
            for column in sessions.keys() - errors.keys():
                errors[column] = sides.error(sessions[column], sides.engine_of(column))
            times = timed({PYTORCH: sides.call, **sides.runs(sessions)}, runs, time.perf_counter)
            milliseconds.append(times[PYTORCH])
            for column in sessions:
                ratios.setdefault(column, []).append(times[column] / times[PYTORCH])
            sessions.clear()  # One of them may hold gigabytes.
    refused = [Row(case.name, column, reason=reason) for column, reason in sides.reasons.items()]
    return refused + [
        Row(case.name, column, error, tuple(ratios[column]), tuple(milliseconds), reason)
        for column, (error, reason) in errors.items()
    ]


def line_of(case: Case, found: Mapping[str, Row]) -> tuple[str, ...]:
    """The cells of one operator."""
    milliseconds = next((row.milliseconds for row in found.values() if row.milliseconds), ())
    times = " / ".join(f"{time:.1f}" for time in milliseconds)
    return (
        case.name,
        case.sizes,
        times,
        *(cell(found[column]) if column in found else "" for column in COLUMNS),
    )


def cell(row: Row) -> str:
    """The times and the error, or the reason in a few words."""
    if not row.ratios:
        return next((words for pattern, words in REASONS.items() if re.search(pattern, row.reason)), row.reason)
    times = " / ".join(f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}" for ratio in row.ratios)
    if row.reason == NEAR_TIES:
        return f"{times} (near ties)"
    return f"{times} ({row.error:.0%})" if row.holds else f"{times} **wrong**"


def page(rows: Sequence[Row]) -> str:
    """The page, from the last row of each operator and column."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row.operator, {})[row.column] = row
    lines = [("operator", "sizes", "PyTorch, ms", *COLUMNS), ("---",) * (3 + len(COLUMNS))]
    lines += [line_of(case, found[case.name]) for case in CASES if case.name in found]
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES if version(name))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    table = "\n".join(f"| {' | '.join(texts)} |" for texts in lines)
    return f"{HEAD}\nWith {versions}; {machine}.\n\n{table}\n"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def rows_in(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    return [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="", help="the operators whose names contain one of these, with commas between")
    parser.add_argument("--engines", default=",".join(ENGINES), help="these engines only, with commas between")
    parser.add_argument("--runs", type=int, default=5, help="least number of short runs of each side (default 5)")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="add the rows to this file, one JSON object per line")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page, from all rows of the file")
    options = parser.parse_args()
    wanted = [text for text in options.op.split(",") if text]
    engines = [name for name in options.engines.split(",") if name and get(name).is_installed()]
    catalog = Catalog.load()
    rows = rows_in(options.rows)
    for case in CASES if engines else ():
        if wanted and not any(text in case.name for text in wanted):
            continue
        made = measure(case, catalog, engines, options.runs)
        rows += made
        for row in made:
            print(f"{row.operator}: {row.column}: {cell(row)}", row.reason, flush=True)
        if options.rows:
            with options.rows.open("a", encoding="utf-8") as stream:
                stream.writelines(json.dumps(dataclasses.asdict(row)) + "\n" for row in made)
    if options.markdown:
        options.markdown.write_text(page(rows), encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
