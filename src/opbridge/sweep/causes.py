"""Why a model did not pass, as short texts that are the same for all models with the same cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from opbridge.capture.failures import CaptureFailure
from opbridge.errors import (
    CaptureError,
    EngineCrashError,
    EngineError,
    InputError,
    OpbridgeError,
    TranslationError,
    UnsupportedOperatorError,
    causes,
    described_error,
    first_line,
)
from opbridge.findings import capture_failed
from opbridge.proof.conformance.exporters import Failure
from opbridge.proof.verify.verification import NOT_VERIFIED, OUTSIDE, PASSING

__all__ = ["general", "of_error", "of_verification", "status_of_crash"]

_LONGEST = 160
_PLACE = re.compile(r"\S*/site-packages/|\(\S+\.py:\d+[^)]*\)|\S+\.py:\d+")
_NUMBER = re.compile(r"(?<!\w)\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_SYMBOL = re.compile(r"\b[su]\d+\b")
_QUOTED = re.compile(r"'(?!aten\b|prims\b|\w+::)[^']*'|`[^`]*`")


def general(text: str) -> str:
    """The first line of a message without what differs from model to model: lines of source, numbers, names.

    The names of operators stay.
    """
    line = _PLACE.sub("", first_line(text))
    line = _SYMBOL.sub("s", _NUMBER.sub("N", _QUOTED.sub("'…'", line)))
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1].rstrip()}…"


def of_error(error: BaseException) -> tuple[str, tuple[str, ...]]:
    """The status of a model that could not be exported, and why."""
    if isinstance(error, EngineCrashError):
        return status_of_crash(error.cause), (general(error.message),)
    if isinstance(error, UnsupportedOperatorError) and error.targets:
        return "translate", tuple(f"no mapping of {target} that the engine takes" for target in error.targets)
    if isinstance(error, TranslationError):
        target = f" of {error.target}" if error.target else ""
        return "translate", (f"the translation{target} failed: {general(_innermost(error))}",)
    if isinstance(error, CaptureFailure) and error.finding.code != capture_failed.CODE:
        return "capture", (f"{error.finding.code}: {general(error.message)}",)
    if isinstance(error, CaptureError):
        return "capture", (general(error.message),)
    if isinstance(error, EngineError):
        return "load", (general(error.message),)
    if isinstance(error, InputError):
        return "capture", (general(error.message),)
    if isinstance(error, Failure):
        return error.stage, (general(str(error)),)
    if isinstance(error, OpbridgeError):
        return "translate", (general(error.message),)
    return "error", (general(_innermost(error)),)


def status_of_crash(cause: str) -> str:
    """The status for the end of a process; see :data:`opbridge.errors.CrashCause`."""
    return cause if cause in ("out of time", "out of memory") else "crashed"


def of_verification(found: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
    """The status of a model that was exported, the causes, and the error in one line.

    Args:
        found: The verification as JSON data.
    """
    if found["crashes"]:
        crash = found["crashes"][0]
        place = f" at {crash['operator']}" if crash["operator"] else ""
        return status_of_crash(crash["cause"]), (f"{general(crash['message'])}{place}",), crash["message"]
    errors = [case["error"] for case in found["cases"] if case["error"]]
    error = first_line(errors[0] if errors else found["error"] or "")
    verdicts = {case["verdict"] for case in found["cases"]}
    if found["verdict"] == "passed" and not found["assumptions"]:
        return "pass", (), ""
    if found["verdict"] == "passed":
        return "capture", ("the model was captured under assumptions",), "; ".join(found["assumptions"])
    if found["verdict"] == "error":
        return "run", (general(error),), error
    if found["verdict"] == "failed":
        return "mismatch", _mismatch(found), error or _first_difference(found)
    status = OUTSIDE if OUTSIDE in verdicts else NOT_VERIFIED
    return status, (general(error) if status == NOT_VERIFIED else "a value is NaN in PyTorch",), error


def _mismatch(found: Mapping[str, Any]) -> tuple[str, ...]:
    operators = [item["first"]["operator"] for item in found["divergences"] if item["first"]]
    if operators:
        return tuple(f"first mismatching node: {operator}" for operator in dict.fromkeys(operators))
    if any(case["eager_matches"] is False for case in found["cases"]):
        return ("the captured graph and the module give different results",)
    return ("an output differs",)


def _first_difference(found: Mapping[str, Any]) -> str:
    wrong = [row for row in found["comparisons"] if row["status"] not in PASSING]
    if not wrong:
        return "the captured graph and the module give different results"
    return f"{wrong[0]['output']} ({wrong[0]['case']}): {wrong[0]['detail'] or wrong[0]['status']}"


def _innermost(error: BaseException) -> str:
    """The exception that an exporter wrapped: torch.onnx reports the one that a translation raised as its cause."""
    return described_error(list(causes(error))[-1])
