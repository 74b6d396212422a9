"""Runs the tasks of a sweep on this machine, with a pool of the standard library."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbridge.engines.process.host import EngineProcess
from opbridge.sweep.process import run_task

__all__ = ["run_locally"]


def run_locally(
    requests: Sequence[Mapping[str, Any]], jobs: int, begin: Callable[[Mapping[str, Any]], None]
) -> Iterator[dict[str, Any]]:
    """Run tasks, ``jobs`` at a time, and yield their rows as they come. Closing the iterator ends what is running.

    Args:
        requests: The tasks, as :func:`~opbridge.sweep.process.run_task` takes them.
        jobs: The number of tasks at a time.
        begin: A callback that receives each task when it starts.
    """
    running = _Running()

    def run(request: Mapping[str, Any]) -> dict[str, Any]:
        begin(request)
        return run_task(request, running.add)

    pool = concurrent.futures.ThreadPoolExecutor(jobs, thread_name_prefix="sweep")
    try:
        for done in concurrent.futures.as_completed([pool.submit(run, request) for request in requests]):
            yield done.result()
    finally:
        running.end()
        pool.shutdown(cancel_futures=True)


class _Running:
    """The processes that were started; those that still run are ended together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[EngineProcess] = []
        self._ended = False

    def add(self, process: EngineProcess) -> None:
        """Note a process that has just started."""
        with self._lock:
            self._processes = [other for other in self._processes if other.alive] + [process]
            if self._ended:
                process.kill()

    def end(self) -> None:
        """End all of them, and those that start from now on."""
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.kill()
