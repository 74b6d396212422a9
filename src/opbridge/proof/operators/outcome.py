"""The outcome of a check: a status, a line, and long output for the log."""

from __future__ import annotations

import dataclasses
import traceback

from opbridge.errors import OpbridgeError
from opbridge.proof.operators.subjects import error_and_place

__all__ = ["Outcome", "failed", "failed_with", "not_applicable", "not_run", "passed"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one check; the fields are those of :class:`opbridge.proof.operators.result.CheckResult`."""

    status: str
    detail: str = ""
    log: str = ""


def passed(detail: str = "") -> Outcome:
    """The check passed."""
    return Outcome("passed", detail)


def failed(detail: str, log: str = "") -> Outcome:
    """The check failed."""
    return Outcome("failed", detail, log)


def not_applicable(reason: str) -> Outcome:
    """The check does not apply."""
    return Outcome("not applicable", reason)


def not_run(reason: str) -> Outcome:
    """The check can't run on this machine."""
    return Outcome("not run", reason)


def failed_with(error: Exception) -> Outcome:
    """The check raised an exception."""
    if isinstance(error, OpbridgeError):
        return Outcome("failed", f"{error.message}\nfix: {error.fix}", error.details or "")
    return Outcome("failed", error_and_place(error), "".join(traceback.format_exception(error)))
