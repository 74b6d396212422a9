"""The words in which every view shows the statuses, verdicts and rungs of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["divergence_words", "error_words", "fixed_by", "share_of_tolerance", "status_words", "unit_words"]

_STATUSES = {
    "equal": "identical",
    "within budget": "pass",
    "decision": "pass (near tie)",
    "random": "pass (same distribution)",
    "differs": "mismatch",
    "shape": "wrong shape",
    "dtype": "wrong dtype",
}
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


def status_words(status: str) -> str:
    """The status of a comparison: ``"pass"`` for ``"within budget"``."""
    return _STATUSES.get(status, status)


def divergence_words(verdict: str) -> str:
    """The verdict of a bisection: ``"first mismatching node"`` for ``"diverges"``."""
    return _DIVERGENCES.get(verdict, verdict)


def fixed_by(rung: str | None) -> str:
    """How a finding was fixed: ``"fixed by a translation"``."""
    return f"fixed by {_FIXES.get(rung, rung)}" if rung else "fixed by opbridge"


def share_of_tolerance(ratio: Any) -> str:
    """The error as a share of the tolerance: ``"4.9%"``; ``"3.4x"`` if it is larger than the tolerance."""
    share = float(ratio)
    if share <= 1:
        return f"{100 * share:.2g}%" if share >= 1e-3 or share == 0 else "<0.1%"
    return f"{share:.3g}x"


def error_words(ratio: Any) -> str:
    """The error relative to the tolerance: ``"4.9% of the tolerance"``, ``"3.4 times the tolerance"``."""
    share = float(ratio)
    return f"{share:.3g} times the tolerance" if share > 1 else f"{share_of_tolerance(share)} of the tolerance"


def unit_words(verification: Mapping[str, Any]) -> str:
    """The unit of errors and tolerances, in a sentence."""
    if verification.get("tolerance"):
        return "Errors are multiples of the given tolerance."
    return "Errors and tolerances are in units of the dtype's machine epsilon at the magnitude of the element."
