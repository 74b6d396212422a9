"""The time and the memory of repeated runs, measured in the process that runs the model."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["measured", "peak_memory"]


def measured(run: Callable[[], object], duration: float) -> dict[str, Any]:
    """Run the model repeatedly.

    Args:
        run: Runs it once.
        duration: The seconds after which no further run starts; the model runs at least once.

    Returns:
        JSON data: ``seconds``, the time of each run, and ``peak_memory``, the bytes of memory that the process held at
        most.
    """
    seconds: list[float] = []
    begin = end = time.perf_counter()
    while not seconds or end - begin < duration:
        start = time.perf_counter()
        run()
        end = time.perf_counter()
        seconds.append(end - start)
    return {"seconds": seconds, "peak_memory": peak_memory()}


def peak_memory() -> int:
    """The largest resident set of this process, in bytes."""
    # On Linux, getrusage also counts what the parent held when it started this process.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    import resource  # Windows does not have it

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
