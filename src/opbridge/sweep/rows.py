"""The rows of a sweep: one model with one exporter and one engine, as one line of JSON that is written once."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opbridge.bundle.checks import parsed
from opbridge.errors import InputError
from opbridge.records import StoredRecord
from opbridge.user_key import read_regular

__all__ = ["NOT_COUNTED", "STATUSES", "Key", "Row", "RowFile", "read_rows"]

STATUSES = (
    *("pass", "mismatch", "outside the contract", "not verified"),
    *("capture", "translate", "load", "run", "crashed", "out of time", "out of memory", "error"),
    *("eager", "not applicable"),
)
"""The results of a model.

"mismatch": the engine's results differ from PyTorch's. "outside the contract" and "not verified": see
:class:`opbridge.proof.verify.verification.Verification`. From "capture" to "error": the stage that failed, or how the
task's process or the engine's ended; "error" is an unexpected exception of the exporter. "eager": the model can't be
built, or does not run in eager PyTorch. "not applicable": the exporter does not take such a model.
"""

NOT_COUNTED = ("eager", "not applicable")
"""The results that say nothing about an exporter."""

_FILE = "rows.jsonl"
_FIX = "name a folder that `opbridge sweep -o` wrote."

Key = tuple[str, str, str, str]
"""The collection, the model, the exporter and the engine of a row."""


@dataclasses.dataclass(frozen=True)
class Row(StoredRecord):
    """The result of one model with one exporter and one engine.

    Attributes:
        zoo: The collection of models: a built-in one, or the name of a file or folder.
        model: The model's name in the collection.
        exporter: "opbridge", or "torch" for the plain ``torch.onnx.export``.
        engine: The engine's name.
        status: One of :data:`STATUSES`.
        causes: Why the model did not pass, each as a short text that is the same for all models with this cause.
        error: The error in one line.
        stage: The stage that was running at the end: "exporting". Empty if the model passed.
        signal: The signal that ended the process: "SIGSEGV"; None if none did.
        log: The end of the process's output after a crash, a hang or a lack of memory.
        seconds: The time by stage: "build", "export" (without the verification), "verify".
        run_seconds: The median time of one run in the engine with one thread, on the example inputs.
        memory: The most memory that the task's process held, in bytes.
        weights: The size of the parameters and buffers, in bytes.
        cases: The number of sets of sizes that were verified.
        tolerance_used: The largest error, divided by the tolerance; None if there was nothing to compare.
        rungs: The rung of each operator that torch.onnx has no mapping for.
        versions: The versions of the packages.
        date: When the row was written, in UTC.
    """

    zoo: str
    model: str
    exporter: str
    engine: str
    status: str
    causes: tuple[str, ...] = ()
    error: str = ""
    stage: str = ""
    signal: str | None = None
    log: str = ""
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    run_seconds: float | None = None
    memory: int | None = None
    weights: int | None = None
    cases: int = 0
    tolerance_used: float | None = None
    rungs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    date: str = ""

    @property
    def key(self) -> Key:
        """What identifies the row in a folder of results."""
        return (self.zoo, self.model, self.exporter, self.engine)

    @property
    def passed(self) -> bool:
        """Whether the engine gives what PyTorch gives."""
        return self.status == "pass"

    @property
    def counts(self) -> bool:
        """Whether the result says something about the exporter."""
        return self.status not in NOT_COUNTED


def read_rows(folder: str | Path) -> list[Row]:
    """The rows of a folder of results; an incomplete last line, of a sweep that was killed, is left out.

    Raises:
        InputError: The folder has no rows, or the file has other content.
    """
    path = Path(folder) / _FILE
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError as error:
        raise InputError(f"There are no results in {str(folder)!r}: it has no file {_FILE}.", fix=_FIX) from error
    except OSError as error:
        raise InputError(f"{str(path)!r} can't be read: {error.strerror or error}.", fix=_FIX) from error
    return _rows(path, lines)


def _rows(path: Path, lines: Sequence[bytes]) -> list[Row]:
    found: dict[Key, Row] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = Row.from_dict(parsed(line))
        except (ValueError, InputError) as error:
            if number == len(lines) and isinstance(error, json.JSONDecodeError):
                break
            raise InputError(
                f"Line {number} of {str(path)!r} is not a row of a sweep.", fix=_FIX, details=str(error)
            ) from error
        found[row.key] = row
    return list(found.values())


class RowFile:
    """The file that a sweep appends its rows to; only one sweep at a time has it.

    Attributes:
        rows: The rows by key, those of earlier runs too.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / _FILE
        self.rows: dict[Key, Row] = {}
        self._descriptor = -1

    @contextlib.contextmanager
    def opened(self) -> Iterator[RowFile]:
        """Read the rows that are there, and take the file for this process.

        Raises:
            InputError: Another sweep writes to the folder, or the file has other content.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise InputError(
                    f"Another sweep is writing to {str(self.path.parent)!r}.",
                    fix="wait for it, or name another folder.",
                ) from error
            self.rows = {row.key: row for row in _rows(self.path, self._whole_lines())}
            yield self
        finally:
            os.close(self._descriptor)

    def append(self, row: Row) -> None:
        """Write a row, so that it is on disk when this returns."""
        os.write(self._descriptor, (json.dumps(row.to_dict()) + "\n").encode())
        os.fsync(self._descriptor)
        self.rows[row.key] = row

    def _whole_lines(self) -> list[bytes]:
        """The lines of the file. An incomplete last one, of a process that was killed, is cut off."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.ftruncate(self._descriptor, len(whole))
        return whole.splitlines()
