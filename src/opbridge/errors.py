"""The errors a user can meet. Each names the culprit and ends with a fix.

::

    OpbridgeError
    ├── InputError                  bad arguments, files, entries, bundles
    ├── CaptureError                link 1: torch.export can't capture the model
    ├── TranslationError            link 2: a mapping to ONNX failed
    │   └── UnsupportedOperatorError    link 2 or 3: no rung of the ladder is left
    ├── BuildError                  a kernel does not compile
    ├── EngineError                 an engine refuses or fails on a model
    │   ├── EngineCrashError            the engine's process crashed, hung, or ran out of memory
    │   └── EngineNotInstalledError     the engine's package is missing
    └── VerificationError           the engine does not compute what PyTorch computes

The command line prints these without a traceback and exits 1. Any other exception is a bug in opbridge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

__all__ = [
    "BuildError",
    "CaptureError",
    "CrashCause",
    "EngineCrashError",
    "EngineError",
    "EngineNotInstalledError",
    "InputError",
    "OpbridgeError",
    "TranslationError",
    "UnsupportedOperatorError",
    "VerificationError",
    "causes",
    "described_error",
    "first_line",
]


CrashCause = Literal["crashed", "killed", "ended", "out of time", "out of memory", "not started"]
"""How an engine's process ended; "ended" if it exited, "not started" if it had crashed too often."""


_LONG_WORD = re.compile(r"(\S{200})\S{201,}(\S{100})")
_MOST_CHARACTERS = 8000


def _shown(text: str) -> str:
    """A message in which words, such as names in a stranger's file, and the whole are short enough for a screen."""
    return _cut(_LONG_WORD.sub(r"\1…\2", text), _MOST_CHARACTERS)


class OpbridgeError(Exception):
    """A problem in the user's model, input or machine.

    Args:
        message: One or a few lines that name the cause and, if known, its line in the user's source. Words of more
            than 500 characters are abbreviated.
        fix: What the user can do, as an instruction.
        details: Long output, such as that of a compiler or torch. It is written to a log file, not to the screen.
    """

    def __init__(self, message: str, *, fix: str, details: str | None = None) -> None:
        self.message = _shown(message)
        self.fix = _shown(fix)
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\nFix: {self.fix}"

    def to_dict(self) -> dict[str, object]:
        """The error as JSON data: ``error`` (class name), ``message`` and ``fix``."""
        return {"error": type(self).__name__, "message": self.message, "fix": self.fix}


class InputError(OpbridgeError):
    """An invalid argument or input file."""


class CaptureError(OpbridgeError):
    """The model can't be captured in a graph (link 1)."""


class TranslationError(OpbridgeError):
    """An operator's mapping to ONNX failed (link 2).

    Args:
        message: One or a few lines that name the cause.
        fix: What the user can do, as an instruction.
        details: Long output for the log file.
        target: The torch operator, such as ``"aten::cummax.default"``; None if it is not known.
    """

    def __init__(self, message: str, *, fix: str, details: str | None = None, target: str | None = None) -> None:
        super().__init__(message, fix=fix, details=details)
        self.target = target


class UnsupportedOperatorError(TranslationError):
    """No rung of the ladder supports these operators on the engine.

    Args:
        message: One or a few lines that name the cause.
        fix: What the user can do, as an instruction.
        targets: The torch operators, such as ``"aten::cummax"``.
    """

    def __init__(self, message: str, *, fix: str, targets: Sequence[str] = (), details: str | None = None) -> None:
        super().__init__(message, fix=fix, details=details)
        self.targets = tuple(targets)


class BuildError(OpbridgeError):
    """A kernel does not compile."""


class EngineError(OpbridgeError):
    """An engine refuses a model, or fails while running it."""


class EngineCrashError(EngineError):
    """An engine in a child process crashed, hung, or ran out of memory.

    Args:
        message: One or a few lines that name the cause.
        fix: What the user can do, as an instruction.
        details: The end of what the engine printed.
        cause: How the process ended.
        signal: The signal that ended the process, such as ``"SIGSEGV"``; None if none did.

    Attributes:
        settings: The settings of the session (a ``SessionSettings`` of ``engines/process/isolation.py``), so that the
            crash can be repeated; None if it was not a session that crashed.
    """

    settings: object | None = None

    def __init__(
        self,
        message: str,
        *,
        fix: str,
        details: str | None = None,
        cause: CrashCause = "crashed",
        signal: str | None = None,
    ) -> None:
        super().__init__(message, fix=fix, details=details)
        self.cause = cause
        self.signal = signal

    def to_dict(self) -> dict[str, object]:
        """The error as JSON data, with ``cause`` and ``signal``."""
        return {**super().to_dict(), "cause": self.cause, "signal": self.signal}


class EngineNotInstalledError(EngineError):
    """The engine's Python package is not installed here."""


class VerificationError(OpbridgeError):
    """The engine's results differ from PyTorch's by more than the tolerance."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that led to it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def first_line(error: BaseException | str, limit: int | None = None) -> str:
    """The first line of an error's message that is not empty; the exception's class name if there is none.

    It is without the addresses of objects, which differ in each process: ``<Embedding at 0x7f02cd21df0>``.

    Args:
        error: An exception, or the text of a message.
        limit: The largest number of characters; a longer line ends with "...". None for no limit.
    """
    line = next((line.strip() for line in _ADDRESS.sub("", str(error)).splitlines() if line.strip()), "")
    return _cut(line if line or isinstance(error, str) else type(error).__name__, limit)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def described_error(error: BaseException, limit: int | None = None) -> str:
    """``"ValueError: first line"``, or the class name alone if the message is empty.

    Args:
        error: The exception.
        limit: The largest number of characters; a longer text ends with "...". None for no limit.
    """
    name, line = type(error).__name__, first_line(str(error))
    return _cut(f"{name}: {line}" if line else name, limit)


def _cut(line: str, limit: int | None) -> str:
    return line if limit is None or len(line) <= limit else line[: limit - 3].rstrip() + "..."
