"""The result of a reduction: data only."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from opbridge.records import StoredRecord

__all__ = ["Reduction"]


@dataclasses.dataclass(frozen=True)
class Reduction(StoredRecord):
    """The smallest model found that still fails, on disk.

    Attributes:
        folder: The folder of the script and the model.
        kind: "results", "crash", "hang", "memory", "error" (of an engine), "mapping", "export" or "capture".
        message: The failure in one line.
        engine: The engine and its version; torch for "capture".
        nodes: The number of nodes in the reduced model; calls for "export", modules for "capture".
        nodes_before: The number of nodes, calls or modules in the whole model.
        operators: The operators of the reduced model.
        tries: The number of models that were run.
        seconds: The time of the search.
        finished: Whether the search ended before its time limit.
        reproduces: Whether the script reproduces the failure in a separate process.
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
