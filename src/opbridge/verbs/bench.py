"""``bench``: measure a bundle on its engines and in eager PyTorch, side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.checks import BENCHMARK
from opbridge.bundle.trust import Consent
from opbridge.bundle.write import write_side_file
from opbridge.engines import chosen as engines_named
from opbridge.engines.base import TensorSpec
from opbridge.engines.feeds import checked_feeds
from opbridge.engines.process.host import EngineProcess
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.process.limits import limited
from opbridge.errors import InputError, OpbridgeError
from opbridge.records import StoredRecord
from opbridge.report.written import write_report
from opbridge.verbs.arguments import quiet

__all__ = ["PYTORCH", "Benchmark", "Measurement", "bench"]

PYTORCH = "PyTorch"
"""The label of eager PyTorch."""

_ROUNDS = 5
"""The number of turns that everything measured takes, so that a busy moment of the machine affects all of it."""

_LONGEST = 86400
"""The most seconds of runs, a day."""

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Measurement(StoredRecord):
    """The times of one engine, or of PyTorch, with one number of threads.

    Attributes:
        label: The engine, with its kernels or with function bodies if the bundle has kernels; or "PyTorch".
        threads: The number of threads; None for the default.
        runs: The number of runs.
        median: The median latency of a run, in seconds.
        p90: The 90th percentile of the latency, in seconds.
        p99: The 99th percentile of the latency, in seconds.
        throughput: The number of runs per second, one after the other.
        peak_memory: The most memory that the process held, in bytes, with the libraries of the engine or of PyTorch.
        ratio: The median divided by PyTorch's with the same number of threads; None if PyTorch was not measured.
    """

    label: str
    threads: int | None
    runs: int
    median: float
    p90: float
    p99: float
    throughput: float
    peak_memory: int
    ratio: float | None = None


@dataclasses.dataclass(frozen=True)
class Benchmark(StoredRecord):
    """What :func:`bench` measured.

    Attributes:
        path: The bundle.
        inputs: The inputs, with the sizes that were measured.
        measurements: One for each engine, each way to run it, and each number of threads; PyTorch's come first.
        notes: What was not measured, and why.
    """

    path: str
    inputs: tuple[TensorSpec, ...]
    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...] = ()

    @property
    def fastest(self) -> Measurement:
        """The measurement with the lowest median."""
        return min(self.measurements, key=lambda found: found.median)


class _Measures(Protocol):
    """A loaded model that runs repeatedly; see :func:`opbridge.engines.process.measuring.measured`."""

    def measure(self, feeds: Feeds, duration: float) -> Mapping[str, Any]:
        """Run it for ``duration`` seconds."""


def bench(
    path: str | os.PathLike[str],
    *,
    engines: Sequence[str] | None = None,
    inputs: Feeds | None = None,
    threads: Sequence[int] = (),
    seconds: float = 2.0,
    reference: str | None = None,
    ops: Sequence[str] = (),
    trust: Consent = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    progress: Callable[[str], None] = quiet,
) -> Benchmark:
    """Measure the latency, the throughput and the memory of a bundle on its engines, and of eager PyTorch.

    Each runs in a process of its own. They take turns, so that a busy moment of the machine affects all of them. The
    first run of each is not counted. The result is written into the bundle too, and its report shows it.

    Args:
        path: The bundle.
        engines: The engines; by default all engines of the bundle.
        inputs: Inputs by name, in the sizes to measure; by default the example inputs of the reference.
        threads: The numbers of threads to measure, each on all engines; empty for the default of each engine.
        seconds: The seconds of runs for each engine and number of threads, at most a day.
        reference: The model that PyTorch runs, as the text of an entry; by default the bundle's own. If PyTorch can't
            run it and ``inputs`` are given, a note says why, and only the engines are measured.
        ops: Operator files, directories or modules in addition to the catalog.
        trust: Whether you trust whoever made the bundle, or the public key that it must be signed with.
        time_limit: The seconds that loading the model, and each run, may take: 600 by default.
        memory_limit: The bytes that each process may take (not on Windows); by default there is no limit.
        progress: A callback that receives the name of each stage as it begins.

    Raises:
        InputError: The bundle is damaged, an argument is wrong, or there are no inputs.
        EngineError: An engine is not installed, refuses the model, or fails.
    """
    if not 0 < seconds <= _LONGEST or any(count < 1 for count in threads):
        raise InputError(
            "The seconds and the numbers of threads of a benchmark are positive, and the seconds at most a day.",
            fix=f"pass positive numbers, and at most {_LONGEST} seconds.",
        )
    bundle = read_bundle(path, trust=trust)
    notes: list[str] = []
    with limited(time_limit=time_limit, memory_limit=memory_limit), contextlib.ExitStack() as opened:
        progress("capturing")
        eager, reason = _eager(bundle, reference, ops, trust, has_inputs=inputs is not None)
        if eager is not None:
            opened.callback(eager.close)
        elif inputs is not None:
            notes.append(f"{PYTORCH} is not measured: {reason}")
        if inputs is None:
            if eager is None:
                raise InputError(f"There are no inputs: {reason}", fix="pass them: --input FILE.npz (inputs={...}).")
            inputs = eager.feeds
        feeds = checked_feeds(bundle.inputs, inputs)
        progress("loading")
        counts: Sequence[int | None] = threads or (None,)
        running: dict[tuple[str, int | None], _Measures] = {}
        if eager is not None and eager.is_torch:
            running |= {(PYTORCH, count): _Threads(eager, count) for count in counts}
        for count in counts:
            for label, session in _sessions(bundle, engines, count, notes):
                running[label, count] = opened.enter_context(session)
        found = _measured(running, feeds, seconds, progress)
    return _recorded(bundle, Benchmark(str(bundle.path), _specs(bundle, feeds), found, tuple(dict.fromkeys(notes))))


class _Eager:
    """The child process that runs the reference in PyTorch.

    Attributes:
        is_torch: Whether the reference is a PyTorch model.
        feeds: Its example inputs.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._process = EngineProcess(PYTORCH, program="opbridge.verbs.eager_child")
        try:
            answer, self.feeds = self._process.ask("loading the model", {"verb": "load", **request})
        except BaseException:
            self.close()
            raise
        self.is_torch: bool = answer["is_torch"]

    def measure(self, feeds: Feeds, duration: float, threads: int | None) -> Mapping[str, Any]:
        """Run it repeatedly with a number of threads."""
        request = {"verb": "measure", "duration": duration, "threads": threads}
        return self._process.ask("running the model", request, feeds)[0]

    def close(self) -> None:
        """End the process."""
        self._process.close()


def _eager(
    bundle: Bundle, reference: str | None, ops: Sequence[str], trust: Consent, *, has_inputs: bool
) -> tuple[_Eager | None, str]:
    """The process that runs the bundle's own reference, or why it can't. An error of the user's reference is raised."""
    request = {
        "bundle": str(bundle.path.absolute()),
        "reference": reference,
        "ops": list(ops),
        "trust": trust if isinstance(trust, bool) else str(trust),
        "has_inputs": has_inputs,
    }
    try:
        return _Eager(request), ""
    except OpbridgeError as error:
        if reference is not None:
            raise
        return None, error.message


@dataclasses.dataclass(frozen=True)
class _Threads:
    """PyTorch with a number of threads."""

    eager: _Eager
    threads: int | None

    def measure(self, feeds: Feeds, duration: float) -> Mapping[str, Any]:
        """See :class:`_Measures`."""
        return self.eager.measure(feeds, duration, self.threads)


def _sessions(
    bundle: Bundle, engines: Sequence[str] | None, threads: int | None, notes: list[str]
) -> Iterator[tuple[str, IsolatedSession]]:
    """The model in every engine, with kernels and without; ``notes`` receives why an engine can't run here."""
    for engine in engines_named(list(engines) if engines else bundle.engines(), quiet):
        if engine.not_run is not None:
            notes.append(f"{engine.name} is not measured: {engine.not_run.reason}")
            continue
        file = bundle.loadable(engine)
        for label, libraries in bundle.runs(engine.name):
            yield label, IsolatedSession(engine.name, file, threads, libraries=libraries)


def _measured(
    running: Mapping[tuple[str, int | None], _Measures], feeds: Feeds, seconds: float, progress: Callable[[str], None]
) -> tuple[Measurement, ...]:
    """The times of everything, in turns."""
    latencies: dict[tuple[str, int | None], list[float]] = {key: [] for key in running}
    memory = dict.fromkeys(running, 0)
    progress("measuring")
    for turn in range(1 + _ROUNDS):
        for key, model in running.items():
            answer = model.measure(feeds, seconds / _ROUNDS if turn else 0.0)
            latencies[key] += answer["seconds"] if turn else ()
            memory[key] = answer["peak_memory"]
    medians = {key: float(np.median(found)) for key, found in latencies.items()}
    return tuple(
        Measurement(
            label=label,
            threads=threads,
            runs=len(found),
            median=medians[label, threads],
            p90=float(np.percentile(found, 90)),
            p99=float(np.percentile(found, 99)),
            throughput=len(found) / sum(found),
            peak_memory=memory[label, threads],
            ratio=medians[label, threads] / medians[PYTORCH, threads] if (PYTORCH, threads) in medians else None,
        )
        for (label, threads), found in latencies.items()
    )


def _specs(bundle: Bundle, feeds: Feeds) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(spec.name, spec.dtype, feeds[spec.name].shape) for spec in bundle.inputs)


def _recorded(bundle: Bundle, result: Benchmark) -> Benchmark:
    """The result, written into the bundle; if that fails, with a note that says so."""
    try:
        write_side_file(bundle, BENCHMARK, result.to_dict())
        write_report(bundle)
    except InputError as error:
        return dataclasses.replace(result, notes=(*result.notes, f"not written into the bundle: {error.message}"))
    return result
