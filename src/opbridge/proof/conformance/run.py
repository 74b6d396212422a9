"""Runs PyTorch's operator database through an exporter and an engine."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import importlib.metadata
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opbridge import engines as known_engines
from opbridge.atomic import check_target
from opbridge.catalog.declare.kernel_choice import AUTO, checked_kernels
from opbridge.catalog.declare.nan import EXACT, checked_nan
from opbridge.errors import InputError
from opbridge.proof.conformance.applicability import NOT_APPLICABLE
from opbridge.proof.conformance.database import DTYPES, dtypes_of, named
from opbridge.proof.conformance.exporters import EXPORTERS
from opbridge.proof.conformance.pool import Tally, check_entries
from opbridge.proof.conformance.results import STATUSES, Result, Way, latest, read_results
from opbridge.proof.progress import Count
from opbridge.proof.verify.verification import OUTSIDE
from opbridge.records import Record

__all__ = ["ConformanceRun", "result_of", "run_conformance"]

_PASSING = ("pass", "not applicable", OUTSIDE)


@dataclasses.dataclass(frozen=True)
class ConformanceRun(Record):
    """The results of a run, including results of earlier runs in the same file.

    Attributes:
        way: The exporter and the engine.
        file: The file of the results, one JSON object per line.
        results: The results of the requested entries, in the order of the database.
        entries: The number of entries in the database.
    """

    way: Way
    file: str
    results: tuple[Result, ...]
    entries: int

    json_keys = ("way", "file", "passed", "entries", "counts", "results")

    @property
    def passed(self) -> bool:
        """Whether every applicable entry passed, or is outside the contract."""
        return all(result.status in _PASSING for result in self.results)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of results by element type and status."""
        counts: dict[str, collections.Counter[str]] = {}
        for result in self.results:
            counts.setdefault(result.dtype, collections.Counter())[result.status] += 1
        return {dtype: {name: count[name] for name in STATUSES if count[name]} for dtype, count in counts.items()}


def run_conformance(
    *,
    file: str | Path,
    engine: str = "onnxruntime",
    exporter: str = "opbridge",
    entries: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    dynamic: bool = False,
    samples: int = 0,
    jobs: int | None = None,
    limit: float = 60.0,
    again: bool = False,
    nan: str = EXACT,
    kernels: str = AUTO,
    progress: Callable[[str], None] = lambda doing: None,
) -> ConformanceRun:
    """Run the samples of PyTorch's operator database on an engine, and compare the results with PyTorch.

    Args:
        file: The file to append the results to, one line of JSON per entry and element type. Results that are already
            in the file are not computed again.
        engine: The engine's name.
        exporter: "opbridge", or "torch" for the plain ``torch.onnx.export``.
        entries: Names of database entries, such as "nn.functional.gelu"; all by default.
        dtypes: Element types, such as "float16"; by default float32, or the first one that an entry supports.
        dynamic: Whether to make every dimension dynamic that PyTorch accepts at a second size, and verify at that size.
        samples: The maximum number of samples per entry; 0 for all.
        jobs: The number of worker processes; by default one per core.
        limit: The time limit of one stage of one sample, in seconds; samples exported together have a longer limit.
        again: Whether to also rerun entries of the file that did not pass.
        nan: "exact" to export and compare NaN as in PyTorch, "absent" for models without support for NaN; samples that
            lead to NaN are then outside the contract.
        kernels: Which of opbridge's own kernels to use: "auto", "never" or "always", as in :func:`opbridge.export`.
        progress: A callback that receives the progress.

    Raises:
        InputError: A name is unknown, the file contains something other than results, or PyTorch's database is missing.
        EngineNotInstalledError: The engine is not installed.
    """
    path = Path(file)
    check_target(path)
    versions = {"torch": importlib.metadata.version("torch"), engine: known_engines.get(engine).version}
    _check_options(exporter, EXPORTERS, dtypes, jobs, limit)
    way = Way(exporter, engine, dynamic, samples, checked_nan(nan), checked_kernels(kernels))
    selected = [(entry, dtype) for entry in named(tuple(entries)) for dtype in _chosen(entry, dtypes, dtypes_of(entry))]
    known = {result.key: result for result in latest(read_results(path) if path.is_file() else [])}
    found: dict[tuple[str, str], Result] = {}
    requests = []
    for entry, dtype in selected:
        earlier = known.get((entry, dtype, *dataclasses.astuple(way)))
        if earlier is not None and (not again or earlier.status in _PASSING):
            found[entry, dtype] = earlier
        else:
            requests.append({"entry": entry, "dtype": dtype, "way": way.to_dict()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        for judged in _results(requests, way, versions, jobs or os.cpu_count() or 1, limit):
            result = dataclasses.replace(judged, date=str(datetime.datetime.now(datetime.UTC).date()))
            print(json.dumps(result.to_dict()), file=stream, flush=True)
            found[result.entry, result.dtype] = result
            doing = f"{result.entry} {result.dtype}: {result.status}"
            progress(Count("checking operators", len(found), len(selected), doing))
    return ConformanceRun(way, str(file), tuple(found[key] for key in selected), len(named(())))


def _check_options(
    exporter: str, exporters: Mapping[str, Any], dtypes: Sequence[str], jobs: int | None, limit: float
) -> None:
    for name, value, known in [("exporter", exporter, exporters), *(("dtype", dtype, DTYPES) for dtype in dtypes)]:
        if value not in known:
            raise InputError(f"There is no {name} {value!r}.", fix=f"choose one of {', '.join(known)}.")
    if (jobs is not None and jobs < 1) or limit <= 0:
        raise InputError(f"jobs={jobs}, limit={limit}: neither can be below 1.", fix="pass jobs=2, limit=60.")


def _chosen(entry: str, dtypes: Sequence[str], supported: Sequence[str]) -> Sequence[str]:
    """The element types in which the entry is run; types without a PyTorch kernel are left out."""
    if not dtypes:
        return supported[:1] or ("float32",)
    return [dtype for dtype in dtypes if dtype in supported]


def _results(
    requests: Sequence[Mapping[str, Any]], way: Way, versions: Mapping[str, str], jobs: int, limit: float
) -> Any:
    applicable = []
    for request in requests:
        reason = NOT_APPLICABLE.get(request["entry"])
        if reason is not None:
            yield Result(request["entry"], request["dtype"], way, "not applicable", {}, reason, versions=versions)
        else:
            applicable.append(request)
    for request, tally in check_entries(applicable, jobs=jobs, limit=limit):
        yield result_of(request, tally, way, versions)


def result_of(request: Mapping[str, Any], tally: Tally, way: Way, versions: Mapping[str, str]) -> Result:
    """Combine the answers of all samples into one result."""
    counts = collections.Counter(answer["status"] for answer in tally.samples.values())
    missing = (tally.total or 0) - sum(counts.values())
    if missing > 0:
        counts["not run"] += missing
    failed = [answer for answer in tally.samples.values() if answer["status"] not in ("pass", "not run")]
    judged = [answer for answer in failed if answer["status"] != OUTSIDE]
    # Samples outside the contract count for the entry only if there are no others.
    worst = min(judged if counts["pass"] else failed, key=lambda answer: STATUSES.index(answer["status"]), default=None)
    rungs: dict[str, str] = {}
    seconds: collections.Counter[str] = collections.Counter()
    for answer in {id(answer): answer for answer in tally.samples.values()}.values():
        rungs |= answer.get("rungs", {})
        seconds.update(answer.get("seconds", {}))
    times = {stage: round(spent, 3) for stage, spent in seconds.items()}
    status, error, sample = "pass", "", ""
    if worst is not None:
        status, error, sample = worst["status"], worst["error"], worst.get("sample", "")
    elif tally.raised:
        status, error = "capture", f"the samples could not be created or checked: {tally.raised}"
    elif not tally.samples:
        status = "not applicable" if way.dynamic else "capture"
        error = "no sample has a dimension with a second size" if way.dynamic else "PyTorch refuses every sample"
    kept = tuple({name: answer.get(name, "") for name in ("status", "error", "sample")} for answer in failed)
    return Result(
        request["entry"], request["dtype"], way, status, dict(counts), error, sample, rungs, times, versions, kept
    )
