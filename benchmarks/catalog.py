"""What each operator of the catalog costs: ONNX Runtime with function body and with kernel, beside eager PyTorch.

    python benchmarks/catalog.py [--family linalg,special] [--op hypot,svd] [--side 256] [--threads 1] [--json FILE]

Each operator works on about a million elements, or, of linear algebra, on random matrices of 256 rows;
``catalog_cases.py`` says on what. Both sides get the same number of threads and take turns; the shortest of some runs
counts, for one thread in the processor's time, which other work on the machine hardly changes. Targets: of each family
the median, the body at most 3 times eager and the kernel at most once; for linear algebra the kernel at most 3 times,
and the body is for portability. An operator whose time grows by another power of its size than eager's is listed as
such: one whose power is larger by more than 0.5, which is a factor of 2, from a quarter of the elements (half the rows)
to all of them, and again from there to four times as many. A fixed cost of eager's at the small size, a cache that is
full, or other work on the machine shows in one of these steps; another power shows in both. The second is measured
where the first is conspicuous, and the power is that of the last one measured. The kernels are those of an export with
``kernels="always"``, with those of chains of elementwise nodes. A call for which no mapping of the catalog is taken is
left out. The exit code is 1 if a family's target does not hold, or an operator grows too fast or fails; operators
without a case are named.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from _table import finish, verdict
from catalog_cases import NOT_TIMED, Case, cases

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.kernel_choice import ALWAYS, NEVER
from opbridge.catalog.declare.nan import ABSENT
from opbridge.catalog.declare.spec import OpSpec
from opbridge.catalog.formulas.element_types import limited_to
from opbridge.engines import get
from opbridge.proof.conformance.calls import Batch, Call
from opbridge.proof.conformance.exporters import by_opbridge
from opbridge.torch_graph.silence import silenced

ELEMENTS, SIDE = 2**20, 256
BODY, KERNEL, LINALG_KERNEL = 3.0, 1.0, 3.0
STEP = 4
"""How many times as many elements the next size has."""
POWER = 0.5
"""How much larger the power of growth may be than eager's, in one of two steps at least."""
LEAST, LONGEST = 0.05, 0.5
"""Seconds: as long as the runs of one side take at least, and after which no further one is begun; a first run that
takes longer is the only one."""
EAGER, BODY_SIDE, KERNEL_SIDE = "eager", "body", "kernel"


@dataclasses.dataclass(frozen=True)
class Row:
    """One operator.

    Times in milliseconds; the powers are those by which they grow with the number of elements, over the last step.
    """

    family: str
    operator: str
    shape: str
    eager: float = math.nan
    body: float = math.nan
    kernel: float | None = None
    power: float = math.nan
    kernel_power: float | None = None
    eager_power: float = math.nan
    failure: str = ""

    @property
    def ratio(self) -> float:
        return self.body / self.eager

    @property
    def kernel_ratio(self) -> float | None:
        return None if self.kernel is None else self.kernel / self.eager

    @property
    def best(self) -> float:
        """Of what the user gets, kernel or body, over eager."""
        return math.inf if self.failure else self.kernel_ratio or self.ratio

    @property
    def holds(self) -> bool:
        return not self.failure and max(self.power, self.kernel_power or 0) <= self.eager_power + POWER


@dataclasses.dataclass(frozen=True)
class Family:
    """The medians of one family over eager."""

    family: str
    operators: int
    body: float
    kernel: float | None

    @property
    def holds(self) -> bool:
        if self.family == "linalg":
            return self.kernel is not None and self.kernel <= LINALG_KERNEL
        return self.body <= BODY and (self.kernel is None or self.kernel <= KERNEL)


def timed(sides: Mapping[str, Callable[[], object]], runs: int, clock: Callable[[], float]) -> dict[str, float]:
    """Milliseconds, the shortest of some runs of each side, in turns, after one that does not count."""
    times: dict[str, list[float]] = {}
    for name, work in sides.items():
        first = _seconds(work, clock)
        times[name] = [first] if first > LONGEST else []
    while open_sides := [name for name, found in times.items() if _goes_on(found, runs)]:
        for name in open_sides:
            times[name].append(_seconds(sides[name], clock))
    return {name: 1e3 * min(found) for name, found in times.items()}


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def _goes_on(times: Sequence[float], runs: int) -> bool:
    spent = sum(times)
    return spent < LONGEST and (len(times) < runs or spent < LEAST)


def measure(case: Case, call: Call, options: argparse.Namespace, catalog: Catalog) -> dict[str, float]:
    """Milliseconds of eager, of the body, and of the kernel where there is one.

    Raises:
        _NotTakenError: The export takes no mapping of the catalog.
        AssertionError: The call does not take the case's mappings.
        Failure: The call can't be exported.
    """
    engine = get("onnxruntime")
    feeds = [tensor.clone() for tensor in call.tensors]
    with torch.no_grad(), silenced(), tempfile.TemporaryDirectory() as folder:
        captured = capture(Batch([call]), tuple(feeds), rewrites=catalog.rewrites())
        sides: dict[str, Callable[[], object]] = {EAGER: call}
        given = dict(zip(captured.input_names, feeds, strict=True))
        for kernels in (NEVER, ALWAYS):
            place = Path(folder) / kernels
            place.mkdir()
            exported = by_opbridge(captured, engine, place, dataclasses.replace(catalog, kernels=kernels))
            _check_taken(case, (*exported.rungs, *captured.rewrites))
            for libraries in exported.libraries:
                name = KERNEL_SIDE if libraries else BODY_SIDE
                sides.setdefault(name, _work(exported.path, libraries, given, options.threads))
        return timed(sides, options.runs, time.process_time if options.threads == 1 else time.perf_counter)


class _NotTakenError(Exception):
    """The export takes no mapping of the catalog."""


def _check_taken(case: Case, taken: Sequence[str]) -> None:
    if not taken:
        raise _NotTakenError
    for target in case.targets:
        if not target.startswith("opbridge::"):
            name = target.removesuffix(".default")
            is_taken = any(other == name or other.startswith(f"{name}.") for other in taken)
            assert is_taken, f"the call does not take {target}; it takes {', '.join(taken) or 'no mapping'}"


def _work(
    path: Path, libraries: Sequence[Path], feeds: Mapping[str, torch.Tensor], threads: int
) -> Callable[[], object]:
    """One run of the model, without what Python's arrays cost."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {item.name for item in session.get_inputs()}
    values = {name: _ort_value(tensor) for name, tensor in feeds.items() if name in names}
    outputs = [item.name for item in session.get_outputs()]
    return functools.partial(session.run_with_ort_values, outputs, values)


def _ort_value(tensor: torch.Tensor) -> onnxruntime.OrtValue:
    if tensor.dtype == torch.float8_e4m3fn:
        bits = np.ascontiguousarray(tensor.view(torch.uint8).numpy())
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _FLOAT8)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensor.numpy()))


_FLOAT8 = 17
"""TensorProto.FLOAT8E4M3FN"""


def _spec(case: Case, catalog: Catalog) -> OpSpec:
    return next(spec for spec in catalog.builtin if spec.target == case.targets[0] and spec.rung != "kernel")


def _call(case: Case, size: int, catalog: Catalog) -> Call:
    """The case at one size; where the mapping is for some element types only, in the first of them."""
    torch.manual_seed(0)
    call = Call(case.function, case.make(size), {})
    dtypes = limited_to(_spec(case, catalog).function)
    tensors = call.tensors
    if dtypes:
        tensors = tuple(x.to(dtypes[0]) if x.is_floating_point() and x.dtype not in dtypes else x for x in tensors)
    return call.with_tensors(tensors)


def without_case(catalog: Catalog) -> list[str]:
    """The operators of the catalog without a case. A rewrite is of a function, and has one where its time matters."""
    targets = {spec.target for spec in catalog.builtin if spec.rung not in ("fake", "rewrite", "kernel")}
    covered = {target for case in cases() for target in case.targets} | set(NOT_TIMED)
    return sorted(targets - covered)


def chosen(options: argparse.Namespace, catalog: Catalog) -> Iterator[tuple[str, Case]]:
    """The cases asked for, with their families."""
    families, names = (set(filter(None, text.split(","))) for text in (options.family, options.op))
    for case in cases():
        family = _spec(case, catalog).function.__module__.removeprefix("opbridge.catalog.ops.").partition(".")[0]
        own = {part for target in case.targets for part in (target, target.rpartition("::")[2])}
        if (not families or family in families) and (not names or names & own):
            yield family, case


def row_of(family: str, case: Case, options: argparse.Namespace, catalog: Catalog) -> Row | None:
    """Measure one operator at its size, below, and above where it seems to grow too fast; None if it is not taken."""
    name, shape = case.targets[0], ""
    size, factor = (options.side, math.isqrt(STEP)) if family == "linalg" else (ELEMENTS, STEP)
    try:
        small = measure(case, _call(case, size // factor, catalog), options, catalog)
        call = _call(case, size, catalog)
        shape = str(call)
        found = measure(case, call, options, catalog)
        row = _row((family, name, shape), small, found, found)
        if not row.holds:
            large = measure(case, _call(case, size * factor, catalog), options, catalog)
            row = _row((family, name, shape), found, large, found)
    except _NotTakenError:
        return None
    except Exception as failure:  # Whatever it is, it is told, and the next operator has its turn.
        return Row(family, name, shape, failure=" ".join(f"{type(failure).__name__}: {failure}".split())[:160])
    return row


def _row(
    case: tuple[str, str, str], below: Mapping[str, float], above: Mapping[str, float], shown: Mapping[str, float]
) -> Row:
    """The times ``shown``, and the powers between two sizes."""
    # A chain on few elements has no kernel.
    powers = {side: math.log(above[side] / below[side], STEP) for side in above if side in below}
    slowest = BODY_SIDE if BODY_SIDE in shown else KERNEL_SIDE
    times = shown[EAGER], shown[slowest], shown.get(KERNEL_SIDE)
    return Row(*case, *times, powers[slowest], powers.get(KERNEL_SIDE), powers[EAGER])


def families_of(rows: Sequence[Row]) -> list[Family]:
    """The medians."""
    found = []
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family and not row.failure]
        kernels = [row.kernel_ratio for row in own if row.kernel_ratio is not None]
        if own:
            body = statistics.median(row.ratio for row in own)
            found.append(Family(family, len(own), body, statistics.median(kernels) if kernels else None))
    return found


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2f}"


def _powers(row: Row) -> str:
    own = " / ".join(filter(None, (_number(row.power), _number(row.kernel_power))))
    return f"{own} ({_number(row.eager_power)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="", help="of these folders of the catalog only, with commas between")
    parser.add_argument("--op", default="", help="these operators only, with commas between")
    parser.add_argument("--side", type=int, default=SIDE, help=f"rows of a matrix (default {SIDE})")
    parser.add_argument("--runs", type=int, default=5, help="least number of short runs of each (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="of both sides (default 1)")
    parser.add_argument("--worst", type=int, default=20, help="how many operators are listed (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    catalog = Catalog.load(nan=ABSENT)
    strangers = without_case(catalog)
    rows = []
    for family, case in chosen(options, catalog):
        row = row_of(family, case, options, catalog)
        if row is None:
            continue
        rows.append(row)
        print(f"{len(rows)} {row.operator} {_number(row.best)} {row.failure}", file=sys.stderr, flush=True)
    listed = sorted(rows, key=lambda row: -row.best)
    shown = list(dict.fromkeys([*listed[: options.worst], *(row for row in rows if not row.holds)]))
    columns = [
        ("family", [row.family for row in shown]),
        ("operator", [row.operator for row in shown]),
        ("eager", [_number(row.eager) for row in shown]),
        ("body", [_number(row.body) for row in shown]),
        ("kernel", [_number(row.kernel) for row in shown]),
        ("body / eager", [_number(row.ratio) for row in shown]),
        ("kernel / eager", [_number(row.kernel_ratio) for row in shown]),
        ("power", [_powers(row) for row in shown]),
        ("holds", [row.failure or verdict(row) for row in shown]),
    ]
    packages = ("torch", "onnxruntime")
    note = f"the worst {len(shown)} of {len(rows)}; times in ms, {options.threads} threads; in brackets eager's power"
    code = finish(rows, columns, packages=packages, runs=options.runs, json_file=options.json, note=note)
    families = families_of(rows)
    medians = [
        ("family", [family.family for family in families]),
        ("operators", [str(family.operators) for family in families]),
        ("body / eager", [_number(family.body) for family in families]),
        ("kernel / eager", [_number(family.kernel) for family in families]),
        ("holds", [verdict(family) for family in families]),
    ]
    code = max(code, finish(families, medians, packages=packages, runs=options.runs, json_file=None))
    if strangers:
        print(f"without a case: {', '.join(strangers)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
