"""The outcome of a check: a status, a line, and long output for the log."""

from __future__ import annotations

import dataclasses
import traceback

from opbridge.errors import OpbridgeError
from opbridge.proof.operators.subjects import told

__all__ = ["Said", "failed", "failed_with", "not_applicable", "not_run", "passed"]


@dataclasses.dataclass(frozen=True)
class Said:
    """The outcome of one check; the fields are those of :class:`opbridge.proof.operators.result.CheckResult`."""

    status: str
    detail: str = ""
    log: str = ""


def passed(detail: str = "") -> Said:
    """The check passed."""
    return Said("passed", detail)


def failed(detail: str, log: str = "") -> Said:
    """The check failed."""
    return Said("failed", detail, log)


def not_applicable(reason: str) -> Said:
    """The check does not apply."""
    return Said("not applicable", reason)


def not_run(reason: str) -> Said:
    """The check can't run on this machine."""
    return Said("not run", reason)


def failed_with(error: Exception) -> Said:
    """The check raised an exception."""
    if isinstance(error, OpbridgeError):
        return Said("failed", f"{error.message}\nfix: {error.fix}", error.details or "")
    return Said("failed", told(error), "".join(traceback.format_exception(error)))
