"""What a reduction came to: data only."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from opbridge.records import StoredRecord

__all__ = ["Reduction"]


@dataclasses.dataclass(frozen=True)
class Reduction(StoredRecord):
    """The smallest model found that still fails, on disk.

    Attributes:
        folder: Where the script and the model are.
        kind: "results", "crash", "hang", "memory", "error" (of an engine), "mapping", "export" or "capture".
        message: How it fails, in one line.
        engine: The engine, with its version; for "capture" torch.
        nodes: Its nodes; for "export" its calls, for "capture" its modules.
        nodes_before: Those of the whole model.
        operators: The operators of what is left.
        tries: How many models were tried.
        seconds: The time it took.
        finished: Whether it ended before its time limit.
        reproduces: Whether the script, run in a process of its own, shows the fault.
        files: The files in the folder.
    """

    folder: Path
    kind: str
    message: str
    engine: str
    nodes: int
    nodes_before: int
    operators: tuple[str, ...]
    tries: int
    seconds: float
    finished: bool
    reproduces: bool
    files: tuple[str, ...]
