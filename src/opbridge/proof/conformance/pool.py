"""Worker processes that check one entry at a time. A crash or a timeout is a result of the entry."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.isolation import child_environment, describe_death
from opbridge.errors import OpbridgeError
from opbridge.proof.verify.verification import OUTSIDE

__all__ = ["Tally", "check_entries"]

_MOST_ENTRIES = 60
"""The number of entries after which a worker is replaced, because torch keeps everything it has compiled."""

_START_SECONDS = 300.0
"""The minimum time limit until a worker begins its first sample: importing torch and creating samples are slow."""

_SAMPLES_PER_LIMIT = 8
"""The number of samples of one export for which the time limit is extended by the limit of one sample."""

_MOST_DEATHS = 3
"""The number of crashes and timeouts after which the rest of an entry's samples are not run."""


class Tally:
    """The intermediate result of an entry.

    Attributes:
        samples: The answer for each sample, by its number.
        total: The number of samples; None until the worker has created them.
        deaths: The number of workers that ended during this entry.
        alone: The samples that were running when a worker ended; each is then run on its own.
    """

    def __init__(self) -> None:
        self.samples: dict[int, Mapping[str, Any]] = {}
        self.total: int | None = None
        self.deaths = 0
        self.alone: set[int] = set()
        self.raised = ""
        self.stage = "capture"
        self.running: list[int] = []

    @property
    def failures(self) -> int:
        """The number of samples that did not pass."""
        return sum(answer["status"] not in ("pass", "not run", OUTSIDE) for answer in self.samples.values())

    def note(self, message: Mapping[str, Any]) -> bool:
        """Record a message of the worker. False if it is the last one of the entry."""
        if "stage" in message:
            self.stage, self.running = message["stage"], message["samples"]
        elif "done" in message:
            self.samples |= dict.fromkeys(message["done"], message)
            self.running = []
        elif "samples" in message:
            self.total = max(self.total or 0, len(self.samples) + message["samples"])
        elif "raised" in message:
            self.raised = message["raised"]
        return not ("end" in message or "raised" in message)

    def note_death(self, cause: str) -> bool:
        """Record the end of the worker. False if the entry is not to be continued."""
        self.deaths += 1
        if not self.running:
            self.raised = cause
            return False
        self.alone |= set(self.running)
        if len(self.running) == 1:
            self.samples[self.running[0]] = {"status": self.stage, "error": cause}
        self.running = []
        return self.deaths < _MOST_DEATHS


class _Worker:
    """One child process."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the child runs
        self._scratch = TemporaryFolder()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "opbridge.proof.conformance.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={"OMP_NUM_THREADS": "1", **child_environment(Path(self._scratch.name))},
        )
        self.entries = 0

    def ask(self, request: Mapping[str, Any], tally: Tally) -> str:
        """Send a request and record its answers. Returns how the process ended, or "" if it still runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.entries += 1
        timed_out = threading.Event()
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        while True:
            limit = self._limit * (1 + len(tally.running) // _SAMPLES_PER_LIMIT)
            limit = limit if tally.running else max(limit, _START_SECONDS)
            alarm = threading.Timer(limit, self._end, (timed_out,))
            alarm.daemon = True
            alarm.start()
            try:
                line = self._process.stdout.readline()
            finally:
                alarm.cancel()
            if not line:
                break
            if not tally.note(json.loads(line)):
                return ""
        code = self._process.wait()
        return f"did not finish within {limit:g} seconds" if timed_out.is_set() else describe_death(code)[0]

    def _end(self, timed_out: threading.Event) -> None:
        timed_out.set()
        self.kill()

    def kill(self) -> None:
        """Kill the process; a pending :meth:`ask` returns."""
        self._process.kill()

    def close(self) -> None:
        """End the process and release its resources."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._log.close()
        self._scratch.cleanup()


def check_entries(
    requests: Iterable[Mapping[str, Any]], *, jobs: int, limit: float
) -> Iterator[tuple[Mapping[str, Any], Tally]]:
    """Check entries in worker processes.

    Args:
        requests: Mappings with the keys ``entry``, ``dtype`` and ``way``.
        jobs: The number of worker processes.
        limit: The time limit of one stage of one sample, in seconds.

    Yields:
        Each request with its result, in the order of completion.
    """
    waiting: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pending = list(requests)
    for request in pending:
        waiting.put(request)
    stopped = threading.Event()
    workers: set[_Worker] = set()
    threads = [
        threading.Thread(target=_serve, args=(waiting, done, limit, stopped, workers), daemon=True)
        for _ in range(min(jobs, len(pending)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in pending:
            found = done.get()
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stopped.set()
        for worker in tuple(workers):
            worker.kill()  # Its current result is no longer needed.
        for thread in threads:
            thread.join(timeout=10)


def _serve(waiting: Any, done: Any, limit: float, stopped: threading.Event, workers: set[_Worker]) -> None:
    """Send waiting requests to a worker, which is replaced when it ends; ``workers`` holds the running ones."""
    worker: _Worker | None = None
    try:
        while not stopped.is_set():
            try:
                request = waiting.get_nowait()
            except queue.Empty:
                break
            tally = Tally()
            while not stopped.is_set():
                worker = worker or _Worker(limit)
                workers.add(worker)
                remaining = {
                    **request,
                    "done": sorted(tally.samples),
                    "failures": tally.failures,
                    "alone": sorted(tally.alone),
                }
                cause = worker.ask(remaining, tally)
                if not cause:
                    break
                workers.discard(worker)
                worker.close()
                worker = None
                if not tally.note_death(cause):
                    break
            if worker is not None and worker.entries >= _MOST_ENTRIES:
                workers.discard(worker)
                worker.close()
                worker = None
            done.put((request, tally))
    except (OSError, ValueError, OpbridgeError) as error:
        done.put(error)
    finally:
        if worker is not None:
            worker.close()
