"""Runs a sweep: every model of some collections, each with every exporter and engine that is asked for."""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opbridge import engines as known_engines
from opbridge.errors import InputError
from opbridge.proof.progress import Count
from opbridge.records import Record
from opbridge.sweep.local import run_locally
from opbridge.sweep.process import KEYS
from opbridge.sweep.ray_cluster import run_on_ray
from opbridge.sweep.rows import STATUSES, Key, Row, RowFile
from opbridge.sweep.zoo import Zoo, matching, open_zoo

__all__ = ["EXPORTERS", "Sweep", "run_sweep"]

EXPORTERS = ("opbridge", "torch")
_PACKAGES = ("opbridge", "torch", "onnx", "onnxscript", "onnx-ir")


@dataclasses.dataclass(frozen=True)
class Sweep(Record):
    """The rows of a sweep, those of earlier runs in the same folder too.

    Attributes:
        folder: The folder of the results.
        rows: The rows of the models that were asked for, in the order of the collections.
        new: The number of rows of this run.
        seconds: The time of this run.
    """

    folder: str
    rows: tuple[Row, ...]
    new: int
    seconds: float

    json_keys = ("folder", "passed", "counts", "new", "seconds", "rows")

    @property
    def passed(self) -> bool:
        """Whether every model passed that runs in eager PyTorch and that the exporter takes."""
        return all(row.passed for row in self.rows if row.counts)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of rows by "exporter on engine" and status."""
        found: dict[str, collections.Counter[str]] = {}
        for row in self.rows:
            found.setdefault(f"{row.exporter} on {row.engine}", collections.Counter())[row.status] += 1
        return {name: {status: count[status] for status in STATUSES if count[status]} for name, count in found.items()}


def run_sweep(
    zoos: Sequence[str],
    folder: str | Path,
    *,
    engines: Sequence[str] = ("onnxruntime",),
    exporters: Sequence[str] = ("opbridge",),
    patterns: Sequence[str] = (),
    jobs: int | None = None,
    ray: str | None = None,
    timeout: float | None = 600.0,
    memory: int | None = None,
    again: bool = False,
    progress: Callable[[str], None] = lambda doing: None,
) -> Sweep:
    """Export, verify and measure the models of collections, each in a process of its own.

    A row is written to ``rows.jsonl`` in the folder as soon as a model is done. Models that have a row are not run
    again, so that a sweep that was stopped at any point goes on where it was.

    Args:
        zoos: The collections, as :func:`~opbridge.sweep.zoo.open_zoo` takes them.
        folder: The folder of the results; it is created if it does not exist.
        engines: The engines.
        exporters: "opbridge", and "torch" for the plain ``torch.onnx.export``.
        patterns: Patterns of the names of the models to run, as in a shell; all by default.
        jobs: The number of tasks at a time on this machine; by default one per core.
        ray: The address of a Ray cluster, or "local" to start one here; None for a pool of processes without Ray.
        timeout: The limit on the time of a task, in seconds; None for none.
        memory: The limit on the memory of a task's process, in bytes; None for none.
        again: Whether to also run models again that did not pass.
        progress: A callback that receives the progress.

    Raises:
        InputError: An argument is wrong, a collection can't be opened, or the folder has rows of other versions.
        EngineNotInstalledError: An engine is not installed.
    """
    for exporter in exporters:
        if exporter not in EXPORTERS:
            raise InputError(f"There is no exporter {exporter!r}.", fix=f"choose one of {', '.join(EXPORTERS)}.")
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs} is below 1.", fix="pass jobs=2.")
    packages = [*_PACKAGES, *(known_engines.chosen([name], progress)[0].package for name in engines)]
    requests = {}
    for zoo in map(open_zoo, zoos):
        limits = {"seconds": timeout, "memory": memory, "packages": _installed([*packages, zoo.package])}
        for key in _keys(zoo, patterns, exporters, engines):
            if key in requests:
                raise InputError(
                    f"Two collections are named {zoo.name!r} and have a model {key[1]!r}.",
                    fix="rename one of the files or folders, or sweep them into different folders.",
                )
            requests[key] = {**dict(zip(KEYS, key, strict=True)), "place": zoo.place, **limits}
    if not requests:
        raise InputError("No model matches.", fix="check the patterns of --filter; without them all models run.")
    started = time.perf_counter()
    with RowFile(folder).opened() as file:
        _check_versions(file.rows.values(), folder)
        known = {key for key in requests if key in file.rows and (file.rows[key].passed or not again)}
        waiting = [request for key, request in requests.items() if key not in known]
        shown = _Shown(len(known), len(requests), progress)
        for data in _run(waiting, jobs, ray, shown.begin):
            row = Row.from_dict(data)
            file.append(row)
            shown.end(row)
        rows = tuple(file.rows[key] for key in requests)
    return Sweep(str(folder), rows, len(waiting), time.perf_counter() - started)


def _run(
    requests: Sequence[Mapping[str, Any]],
    jobs: int | None,
    ray: str | None,
    begin: Callable[[Mapping[str, Any]], None],
) -> Iterator[dict[str, Any]]:
    if ray is not None:
        return run_on_ray(requests, ray, jobs, begin)
    return run_locally(requests, jobs or os.cpu_count() or 1, begin)


def _keys(zoo: Zoo, patterns: Sequence[str], exporters: Sequence[str], engines: Sequence[str]) -> Iterator[Key]:
    for model in matching(zoo.models, patterns):
        for exporter in exporters:
            for engine in engines:
                yield zoo.name, model, exporter, engine


def _installed(packages: Sequence[str]) -> list[str]:
    """The packages of which there is metadata, each once: an engine may come without."""
    found = {distribution.name.lower() for distribution in importlib.metadata.distributions() if distribution.name}
    return [package for package in dict.fromkeys(packages) if package and package.lower() in found]


def _check_versions(rows: Any, folder: str | Path) -> None:
    """Raise InputError if there are rows of other versions: a folder of results is about one set of versions."""
    for row in rows:
        for package, version in row.versions.items():
            try:
                here = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
            if here != version:
                raise InputError(
                    f"{str(folder)!r} has rows of {package} {version}, and {here} is installed here.",
                    fix="name another folder; `opbridge sweep diff` compares the two.",
                )


class _Shown:
    """What the progress shows: how many models are done, how they ended, and what is running."""

    def __init__(self, done: int, total: int, progress: Callable[[str], None]) -> None:
        self._lock = threading.Lock()
        self._done, self._total, self._progress = done, total, progress
        self._counts: collections.Counter[str] = collections.Counter()
        self._running: dict[Any, str] = {}
        self._started = time.monotonic()
        self._new = 0

    def begin(self, request: Mapping[str, Any]) -> None:
        """Note that a task starts."""
        with self._lock:
            self._running[tuple(request[name] for name in KEYS)] = request["model"]
            self._show()

    def end(self, row: Row) -> None:
        """Note that a task has ended."""
        with self._lock:
            self._running.pop(row.key, None)
            self._counts[row.status] += 1
            self._done += 1
            self._new += 1
            self._show()

    def _show(self) -> None:
        counts = ", ".join(f"{count} {status}" for status, count in self._counts.most_common())
        minutes = (time.monotonic() - self._started) / 60
        rate = f"{self._new / minutes:.1f} a minute" if self._new and minutes > 0.1 else ""
        names = list(self._running.values())
        running = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        parts = [counts, rate, f"running: {running}" if running else ""]
        self._progress(Count("sweeping", self._done, self._total, "; ".join(filter(None, parts))))
