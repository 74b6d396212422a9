"""Summarises verifications in one line."""

from __future__ import annotations

from collections.abc import Sequence

from opbridge.proof.operators.outcome import Outcome, failed, passed
from opbridge.proof.verify.verification import Comparison, Verification, status_words

__all__ = ["judged"]


def judged(verifications: Sequence[Verification]) -> Outcome:
    """The error of the worst output, or the reason why the first failing output failed."""
    comparisons = [comparison for verification in verifications for comparison in verification.comparisons]
    wrong = [comparison for comparison in comparisons if not comparison.passed]
    log = "\n".join(verification.summary() for verification in verifications)
    if wrong:
        return failed(f"{wrong[0].output} differs from PyTorch's: {_measured(wrong[0])}", log)
    for verification in verifications:
        if not verification.passed:
            return failed(verification.error or "the captured graph does not compute what the operator computes", log)
    worst = max(comparisons, key=lambda comparison: comparison.ratio, default=None)
    return passed(_measured(worst) if worst is not None else "it has no output")


def _measured(comparison: Comparison) -> str:
    if comparison.status == "within budget":
        return f"pass: {comparison.ratio:.1%} of the tolerance"
    if comparison.status != "differs":
        return f"{status_words(comparison.status)}{': ' if comparison.detail else ''}{comparison.detail}"
    far = f"by {comparison.max_abs:.3g}" if comparison.max_abs else "in values that are not finite"
    detail = f"; {comparison.detail}" if comparison.detail else ""
    return f"{far} ({comparison.ratio:.3g} times the tolerance){detail}"
