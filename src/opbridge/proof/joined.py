"""The verifications of several engines as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from opbridge.verification import Verification

__all__ = ["joined"]


def joined(results: Sequence[Verification]) -> Verification:
    """Failed if one failed; the error is that of the first that did not pass."""
    if len(results) == 1:
        return results[0]
    worst = next((result for result in results if not result.passed), results[0])
    keys = dict.fromkeys(key for result in results for key in result.seconds)
    return dataclasses.replace(
        worst,
        seconds={key: sum(result.seconds.get(key, 0.0) for result in results) for key in keys},
        engine=", ".join(result.engine for result in results),
        cases=tuple(case for result in results for case in result.cases),
        comparisons=tuple(comparison for result in results for comparison in result.comparisons),
        reference="; ".join(dict.fromkeys(result.reference for result in results)),
    )
