"""Runs one task of a sweep in a process of its own, with limits on its time and memory. Its end is a row too."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opbridge.atomic import TemporaryFolder
from opbridge.engines.process.host import EngineProcess
from opbridge.engines.process.limits import Limits
from opbridge.errors import EngineCrashError, OpbridgeError
from opbridge.sweep.causes import general, status_of_crash

__all__ = ["KEYS", "run_task"]

KEYS = ("zoo", "model", "exporter", "engine")
"""The fields of a request that are the key of its row."""

_LOG = 4000


def run_task(
    request: Mapping[str, Any], started: Callable[[EngineProcess], None] = lambda process: None
) -> dict[str, Any]:
    """Run one task and return its row as JSON data.

    Args:
        request: The key of the row, and ``place`` (the collection as :func:`~opbridge.sweep.zoo.open_zoo` takes it),
            ``packages`` (whose versions the row records), ``seconds`` and ``memory`` (the limits; None for none).
        started: A callback that receives the task's process.
    """
    key = {name: request[name] for name in KEYS}
    begun = time.perf_counter()
    with TemporaryFolder() as folder:
        stage = Path(folder) / "stage"
        process = EngineProcess(
            key["model"], limits=Limits(request["seconds"], request["memory"]), program="opbridge.sweep.task"
        )
        started(process)
        try:
            answer, _ = process.ask("running its task", {**request, "stage_file": str(stage)})
            row = answer["row"]
        except OpbridgeError as error:
            row = _ended(error, stage)
        finally:
            process.close()
    row["seconds"] = {**row.get("seconds", {}), "all": time.perf_counter() - begun}
    return {**row, **key, "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def _ended(error: OpbridgeError, stage_file: Path) -> dict[str, Any]:
    """The row of a task that did not answer, or that raised an exception that it does not expect."""
    stage = ""
    with contextlib.suppress(OSError):
        stage = stage_file.read_text(encoding="utf-8")
    status, signal, how = "error", None, general(error.message)
    if isinstance(error, EngineCrashError):
        status, signal = status_of_crash(error.cause), error.signal
        how = f"{signal or status} while {stage or 'starting'}"
    return {
        "status": status,
        "causes": [how],
        "error": " ".join(error.message.split()),
        "stage": stage,
        "signal": signal,
        "log": (error.details or "")[-_LOG:],
    }
