"""Describes failures as data, so that two failures can be compared."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from opbridge.errors import EngineCrashError, OpbridgeError, first_line
from opbridge.proof.verify.verification import Comparison

__all__ = ["Failure", "failure_of_comparisons", "failure_of_error"]

_KINDS = {"out of time": "hang", "out of memory": "memory"}
_LONGEST = 200
_TEMPORARY = re.compile(r"[^\s\"']*/opbridge-[^\s\"'/]*/")


@dataclasses.dataclass(frozen=True)
class Failure:
    """One way to fail.

    Attributes:
        kind: "results" (they differ from the ONNX standard), "crash", "hang", "memory", "error" (the engine raises an
            error) or "export".
        signature: The part that a smaller model must share: the signal, or the error without names and numbers.
        message: A description in one line.
    """

    kind: str
    signature: str
    message: str

    def is_like(self, other: Failure | None) -> bool:
        """Whether ``other`` is the same failure."""
        return other is not None and (self.kind, self.signature) == (other.kind, other.signature)


def failure_of_error(error: OpbridgeError, stage: str, names: Iterable[str] = ()) -> Failure:
    """The failure of an engine that raised an exception.

    Args:
        error: The exception of the engine.
        stage: "loading" or "running".
        names: The names of the model's values and nodes, which are removed from the message.
    """
    message = _TEMPORARY.sub("", error.message)
    if isinstance(error, EngineCrashError):
        kind = _KINDS.get(error.cause, "crash")
        return Failure(kind, error.signal or error.cause, message)
    return Failure("error", f"{stage}: {_without_names(message, names)}", message)


def failure_of_comparisons(found: Sequence[Comparison]) -> Failure | None:
    """The failure of an engine with mismatching outputs; None if all outputs pass."""
    wrong = [comparison for comparison in found if not comparison.passed]
    if not wrong:
        return None
    worst = max(wrong, key=lambda comparison: comparison.ratio)
    return Failure("results", worst.status, str(worst))


def _without_names(message: str, names: Iterable[str]) -> str:
    text = first_line(message)
    for name in sorted((name for name in names if len(name) > 1), key=len, reverse=True):
        text = text.replace(name, "")
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*", "", text)
    return re.sub(r"[\d\W_]+", " ", text).strip()[:_LONGEST]
