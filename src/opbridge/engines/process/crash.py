"""How and at which node an engine's process ended, as data."""

from __future__ import annotations

import dataclasses

from opbridge.errors import CrashCause
from opbridge.records import StoredRecord

__all__ = ["Crash"]


@dataclasses.dataclass(frozen=True)
class Crash(StoredRecord):
    """A crash, a hang, or a lack of memory in an engine's child process.

    Attributes:
        case: The case that was running; empty if the model was being loaded.
        cause: How the process ended.
        signal: The signal that ended the process, such as ``"SIGSEGV"``; None if there was no signal.
        message: A description in one or two sentences.
        log: The end of the engine's output.
        node: The name of the first node of the ONNX model that causes the crash; empty if it was not found.
        operator: The operator of ``node``, ``"domain::Op"``; the standard domain is written ``"ai.onnx"``.
        between: The candidate nodes, if the model can't be cut between them; otherwise empty.
        source: The user's line that the node comes from, ``"file.py:12"``; empty if unknown.
        runs: The number of processes that were started to find the node.
        detail: Why the node was not found, or another remark, in one line.
        engine: The engine, if several were verified.
    """

    case: str
    cause: CrashCause
    message: str
    signal: str | None = None
    log: str = ""
    node: str = ""
    operator: str = ""
    between: tuple[str, ...] = ()
    source: str = ""
    runs: int = 0
    detail: str = ""
    engine: str = ""

    @property
    def place(self) -> str:
        """The node and the source line in words; empty if unknown."""
        if not self.node:
            return ""
        at = f"at node {self.node!r} ({self.operator})"
        if self.between:
            at = f"at one of the nodes {', '.join(map(repr, self.between))}"
        return f"{at}{f', {self.source}' if self.source else ''}"

    def __str__(self) -> str:
        message = self.message if self.message.endswith(".") else f"{self.message}."
        place = f" It happens {self.place}." if self.place else ""
        return f"{message}{place}{f' ({self.detail})' if self.detail else ''}"
