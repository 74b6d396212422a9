"""Repeats the first case, because a kernel with a race is wrong only in some runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opbridge.proof.verify.verification import Comparison

__all__ = ["repeated"]

_MOST, _SECONDS = 15, 0.5

Results = Mapping[str, np.ndarray]


def repeated(
    run: Callable[[], Results],
    compare: Callable[[Results], list[Comparison]],
    results: Results,
    found: Sequence[Comparison],
    run_seconds: float,
) -> tuple[Results, Sequence[Comparison]]:
    """Run an engine several more times on a case that passed.

    Args:
        run: Runs the engine.
        compare: Compares results with the reference's.
        results: The results of the first run.
        found: The comparisons of the first run.
        run_seconds: The time of the first run; all other runs together take at most half a second.

    Returns:
        The first results that fail and their comparisons; ``results`` and ``found`` if all runs pass.
    """
    for _ in range(min(_MOST, int(_SECONDS / max(run_seconds, 1e-9)))):
        others = run()
        if any(results[name].tobytes() != others[name].tobytes() for name in results):
            again = compare(others)
            if not all(comparison.passed for comparison in again):
                return others, again
    return results, found
