"""What each operator of the catalog costs: ONNX Runtime with function body and with kernel, beside eager PyTorch.

    python benchmarks/catalog.py [--family linalg,special] [--op svd,zeta] [--side 256] [--runs 5] [--json FILE]

Elementwise, indexing, reduction, nn and special operators work on samples of PyTorch's own operator database, enlarged
to about a million elements; linear algebra on random matrices of 256 rows. Everything runs on one thread, the sides in
turns, and medians count. Targets: of each family the median, the body at most 3 times eager and the kernel at most
once; for linear algebra the kernel at most 3 times. An operator whose time grows by another power of its size than
eager's (from a quarter of the elements, 128 rows for matrices) is listed as such. The exit code is 1 if a family's
target does not hold or an operator grows too fast.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from _table import finish, verdict
from torch import Tensor

from opbridge.capture import capture
from opbridge.catalog import Catalog
from opbridge.conformance import database
from opbridge.conformance.calls import Batch, Call
from opbridge.conformance.exporters import Failure, by_opbridge
from opbridge.conformance.sizes import moves_of
from opbridge.engines import get
from opbridge.silence import silenced

ELEMENTS, SIDE = 1_000_000, 256
BODY, KERNEL, LINALG_KERNEL = 3.0, 1.0, 3.0
POWER = 0.5
"""How much larger the power of growth may be than eager's: what noise and caches do stays below."""
LONGEST = 60.0
"""Seconds after which a run of an operator is given up."""

NAMES = {"_cdist_forward": "cdist", "_euclidean_dist": "cdist"}


def _square(side: int) -> Tensor:
    return torch.randn(side, side)


def _positive(side: int) -> Tensor:
    a = torch.randn(side, side)
    return a @ a.mT + side * torch.eye(side)


def _symmetric(side: int) -> Tensor:
    a = torch.randn(side, side)
    return a + a.mT


def _well(side: int) -> Tensor:
    return torch.randn(side, side) + side * torch.eye(side)


MATRICES: dict[str, tuple[Callable[..., object], Callable[[int], tuple[Tensor, ...]]]] = {
    "linalg.cholesky": (torch.linalg.cholesky, lambda n: (_positive(n),)),
    "cholesky_inverse": (torch.cholesky_inverse, lambda n: (torch.linalg.cholesky(_positive(n)),)),
    "cholesky_solve": (torch.cholesky_solve, lambda n: (_square(n), torch.linalg.cholesky(_positive(n)))),
    "linalg.lu_factor": (torch.linalg.lu_factor, lambda n: (_well(n),)),
    "linalg.lu": (torch.linalg.lu, lambda n: (_well(n),)),
    "linalg.inv": (torch.linalg.inv, lambda n: (_well(n),)),
    "linalg.solve": (torch.linalg.solve, lambda n: (_well(n), _square(n))),
    "linalg.det": (torch.linalg.det, lambda n: (_well(n) / n,)),
    "linalg.slogdet": (torch.linalg.slogdet, lambda n: (_well(n),)),
    "linalg.solve_triangular": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        lambda n: (_well(n).triu(), _square(n)),
    ),
    "linalg.ldl_factor": (torch.linalg.ldl_factor, lambda n: (_symmetric(n),)),
    "linalg.qr": (torch.linalg.qr, lambda n: (_square(n),)),
    "linalg.svd": (torch.linalg.svd, lambda n: (_square(n),)),
    "linalg.svdvals": (torch.linalg.svdvals, lambda n: (_square(n),)),
    "linalg.eigh": (torch.linalg.eigh, lambda n: (_symmetric(n),)),
    "linalg.eigvalsh": (torch.linalg.eigvalsh, lambda n: (_symmetric(n),)),
    "linalg.eigvals": (torch.linalg.eigvals, lambda n: (_square(n),)),
    "linalg.lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, lambda n: (_well(n), _square(n))),
    "linalg.pinv": (torch.linalg.pinv, lambda n: (_square(n),)),
    "linalg.matrix_exp": (torch.linalg.matrix_exp, lambda n: (_square(n) / n,)),
    "cdist": (torch.cdist, lambda n: (_square(4 * n), _square(4 * n))),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One operator. Times in milliseconds; the powers are those by which they grow with the number of elements."""

    family: str
    operator: str
    shape: str
    eager: float
    body: float
    kernel: float | None
    power: float
    eager_power: float
    failure: str = ""

    @property
    def ratio(self) -> float:
        return self.body / self.eager

    @property
    def kernel_ratio(self) -> float | None:
        return None if self.kernel is None else self.kernel / self.eager

    @property
    def holds(self) -> bool:
        return not self.failure and self.power <= self.eager_power + POWER


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


def enlarged(call: Call, elements: int) -> Call | None:
    """The call with its dimensions doubled until its largest tensor has so many elements; None where none may grow."""
    moves = moves_of(call)
    tensors = list(call.tensors)
    if not moves or not tensors:
        return None
    while max(tensor.numel() for tensor in tensors) < elements:
        before = max(tensor.numel() for tensor in tensors)
        for move in moves:
            for i, axis in move:
                tensors[i] = tensors[i].repeat([2 if axis == other else 1 for other in range(tensors[i].dim())])
            if max(tensor.numel() for tensor in tensors) >= elements:
                break
        if max(tensor.numel() for tensor in tensors) == before:
            return None
    larger = call.with_tensors(tensors)
    try:
        larger()
    except Exception:  # Whatever PyTorch raises for sizes that it does not take.
        return None
    return larger


def timed(work: Callable[[], object], runs: int) -> float:
    """Milliseconds, the median of some runs after one that does not count."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        if sum(times) > LONGEST:
            break
    return 1e3 * statistics.median(times)


def measure(call: Call, runs: int, catalog: Catalog) -> tuple[float, float, float | None]:
    """Milliseconds of eager, of the body, and of the kernel where there is one."""
    engine = get("onnxruntime")
    feeds = [tensor.clone() for tensor in call.tensors]
    with torch.no_grad(), silenced(), tempfile.TemporaryDirectory() as folder:
        captured = capture(Batch([call]), tuple(feeds), rewrites=catalog.rewrites())
        exported = by_opbridge(captured, engine, Path(folder), catalog)
        found: dict[bool, float] = {}
        for libraries in exported.libraries:
            session = engine.load(exported.path, threads=1, libraries=libraries)
            names = [spec.name for spec in session.inputs]
            arrays = dict(zip(captured.input_names, (np.ascontiguousarray(t.numpy()) for t in feeds), strict=True))
            given = {name: arrays[name] for name in names}
            found[bool(libraries)] = timed(functools.partial(session.run, given), runs)
        eager = timed(call, runs)
    kernel = found.get(True)
    return eager, found.get(False, kernel if kernel is not None else math.nan), kernel


def candidates(families: Sequence[str], names: Sequence[str], side: int) -> Iterator[tuple[str, str, Call, Call]]:
    """Family, operator, and its call at a quarter of the size and at the whole."""
    if "linalg" in families or not families:
        for name, (function, make) in MATRICES.items():
            if not names or name in names:
                torch.manual_seed(0)
                small, large = (Call(function, make(n), {}) for n in (side // 2, side))
                yield "linalg", name, small, large
    for name, family in sorted(_served().items()):
        if (families and family not in families) or (names and name not in names) or family == "linalg":
            continue
        entries = [entry for entry, info in database.entries().items() if info.name.split(".")[-1] == name]
        for entry in entries[:1]:
            with silenced():
                calls = [c for c in database.calls_of(entry, database.dtypes_of(entry)[0]) if not c.has_empty_tensor]
                calls.sort(key=lambda call: -max((t.numel() for t in call.tensors), default=0))
                pairs = ((enlarged(call, ELEMENTS // 4), enlarged(call, ELEMENTS)) for call in calls[:6])
                pair = next(((a, b) for a, b in pairs if a is not None and b is not None), None)
            if pair is not None:
                yield family, entry, *pair


def _served() -> dict[str, str]:
    """The operators of the catalog, with the folder that each is in."""
    served = {}
    for spec in Catalog.load().builtin:
        if spec.rung != "rewrite" and spec.target.startswith("aten::"):
            name = spec.target.partition("::")[2].partition(".")[0]
            family = spec.function.__module__.split(".")[2]
            served[NAMES.get(name, name.removeprefix("special_"))] = family
    return served


def _row(family: str, name: str, small: Call, large: Call, runs: int, catalog: Catalog) -> Row:
    try:
        before, after = measure(small, runs, catalog), measure(large, runs, catalog)
    except Failure as failure:
        return Row(family, name, str(large), math.nan, math.nan, None, math.nan, math.nan, str(failure)[:120])
    growth = math.log(sum(t.numel() for t in large.tensors) / sum(t.numel() for t in small.tensors))
    powers = [math.log(b / a) / growth for a, b in zip(before[:2], after[:2], strict=True)]
    return Row(family, name, str(large), after[0], after[1], after[2], powers[1], powers[0])


def _families(rows: Sequence[Row]) -> list[Family]:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="", help="of these folders of the catalog only, with commas between")
    parser.add_argument("--op", default="", help="these operators only, with commas between")
    parser.add_argument("--side", type=int, default=SIDE, help=f"rows of a matrix (default {SIDE})")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default 5)")
    parser.add_argument("--worst", type=int, default=20, help="how many operators are listed (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    catalog = Catalog.load()
    chosen_families, names = (list(filter(None, text.split(","))) for text in (options.family, options.op))
    rows = []
    for family, name, small, large in candidates(chosen_families, names, options.side):
        rows.append(_row(family, name, small, large, options.runs, catalog))
        print(f"{len(rows)} {name}", file=sys.stderr, flush=True)
    listed = sorted(rows, key=lambda row: -(row.ratio if not row.failure else math.inf))
    shown = list(dict.fromkeys([*listed[: options.worst], *(row for row in rows if not row.holds)]))
    columns = [
        ("family", [row.family for row in shown]),
        ("operator", [row.operator for row in shown]),
        ("eager", [_number(row.eager) for row in shown]),
        ("body", [_number(row.body) for row in shown]),
        ("kernel", [_number(row.kernel) for row in shown]),
        ("body / eager", [_number(row.ratio) for row in shown]),
        ("kernel / eager", [_number(row.kernel_ratio) for row in shown]),
        ("power", [f"{_number(row.power)} ({_number(row.eager_power)})" for row in shown]),
        ("holds", [row.failure or verdict(row) for row in shown]),
    ]
    packages = ("torch", "onnxruntime")
    note = f"the worst {len(shown)} of {len(rows)}; times in ms; in brackets the power by which eager grows"
    code = finish(rows, columns, packages=packages, runs=options.runs, json_file=options.json, note=note)
    families = _families(rows)
    medians = [
        ("family", [family.family for family in families]),
        ("operators", [str(family.operators) for family in families]),
        ("body / eager", [_number(family.body) for family in families]),
        ("kernel / eager", [_number(family.kernel) for family in families]),
        ("holds", [verdict(family) for family in families]),
    ]
    return max(code, finish(families, medians, packages=packages, runs=options.runs, json_file=None))


if __name__ == "__main__":
    sys.exit(main())
