"""The words in which every view shows the statuses, verdicts and rungs of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["conformance_words", "divergence_words", "fixed_by", "unit_words"]

_DIVERGENCES = {
    "diverges": "first mismatching node",
    "vanishes when observed": "mismatch disappears when intermediate values are read",
    "not deterministic": "engine is not deterministic",
    "not found": "first mismatching node not found",
}
_FIXES = {
    "opset": "a newer opset",
    "rewrite": "a rewrite",
    "decompose": "a decomposition",
    "translate": "a translation",
    "function": "a function body",
    "kernel": "a kernel",
}
_STAGES = {"capture": "not captured", "translate": "not translated", "load": "not loaded", "run": "fails to run"}


def conformance_words(status: str) -> str:
    """The result of an operator of a conformance run: ``"not translated"`` for the stage ``"translate"``."""
    return _STAGES.get(status, status)


def divergence_words(verdict: str) -> str:
    """The verdict of a bisection: ``"first mismatching node"`` for ``"diverges"``."""
    return _DIVERGENCES.get(verdict, verdict)


def fixed_by(rung: str | None) -> str:
    """How a finding was fixed: ``"fixed by a translation"``."""
    return f"fixed by {_FIXES.get(rung, rung)}" if rung else "fixed by opbridge"


def unit_words(verification: Mapping[str, Any]) -> str:
    """The unit of errors and tolerances, in a sentence."""
    if verification.get("tolerance"):
        return "Errors are multiples of the given tolerance."
    return "Errors and tolerances are in units of the dtype's machine epsilon at the magnitude of the element."
