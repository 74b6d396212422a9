"""Runs the tasks of a sweep with Ray, on this machine or on a cluster that runs already.

Ray schedules the tasks by their CPUs and memory, ships them, and runs those of a lost worker or machine again. The
limits on time and memory are kept by the task's own process, because Ray's memory is a number for its scheduler and its
tasks have no time limit.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbridge.errors import InputError
from opbridge.sweep.process import KEYS, run_task

__all__ = ["run_on_ray"]

_RETRIES = 3
_PATIENCE = 10.0
_AHEAD = 2
"""The number of tasks per CPU that are submitted at a time, so that no CPU waits for the next one."""
_DEFAULT_MEMORY = 2 << 30
"""The memory that a task reserves if it has no limit: PyTorch, the exporter and a model of some hundred megabytes."""


def run_on_ray(
    requests: Sequence[Mapping[str, Any]], address: str, jobs: int | None, begin: Callable[[Mapping[str, Any]], None]
) -> Iterator[dict[str, Any]]:
    """Run tasks on a Ray cluster, and yield their rows as they come, each once. Closing the iterator cancels the rest.

    Args:
        requests: The tasks, as :func:`~opbridge.sweep.process.run_task` takes them.
        address: The address of a cluster ("auto" for the one of this machine), or "local" to start one here.
        jobs: The number of CPUs of the cluster that "local" starts; by default all of this machine.
        begin: A callback that receives each task when it is handed to Ray.

    Raises:
        InputError: Ray is not installed, or there is no cluster at the address.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("Ray is not installed here.", fix="pip install --upgrade ray, or leave --ray out.")
    import ray

    _connect(ray, address, jobs)
    try:
        yield from _rows(ray, requests, begin)
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str, jobs: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        options |= {"num_cpus": jobs, "include_dashboard": False}
    try:
        host, separator, port = address.rpartition(":")
        if separator and "://" not in address:  # Ray itself would try for minutes.
            socket.create_connection((host, int(port)), _PATIENCE).close()
        ray.init(address=address, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"There is no Ray cluster at {address!r}: {error}",
            fix="start one with `ray start --head` and pass the address that it prints, or pass --ray local.",
        ) from error


def _rows(
    ray: Any, requests: Sequence[Mapping[str, Any]], begin: Callable[[Mapping[str, Any]], None]
) -> Iterator[dict[str, Any]]:
    task = ray.remote(run_task)
    # No machine could run a task that reserves more than the largest one has, and Ray would wait for such a machine.
    most = max(int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"])
    waiting = list(reversed(requests))
    submitted: dict[Any, Mapping[str, Any]] = {}
    while waiting or submitted:
        while waiting and len(submitted) < _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))):
            request = waiting.pop()
            memory = min(request["memory"] or _DEFAULT_MEMORY, most)
            reference = task.options(num_cpus=1, memory=memory, max_retries=_RETRIES).remote(request)
            submitted[reference] = request
            begin(request)
        (done,), _ = ray.wait(list(submitted), num_returns=1)
        yield _row(ray, done, submitted.pop(done))


def _row(ray: Any, reference: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a task that Ray has finished; of a task whose workers were lost too often, one that says so."""
    try:
        row: dict[str, Any] = ray.get(reference)
        return row
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:
        text = " ".join(str(error).split())
        lost = {"status": "crashed", "causes": [f"Ray lost the task: {type(error).__name__}"], "error": text[:400]}
        return {**lost, **{name: request[name] for name in KEYS}}
