"""Random outputs: tests whether two samples of runs have the same distribution."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

__all__ = ["LARGEST_CHANCE_EXCESS", "compare_runs"]

LARGEST_CHANCE_EXCESS = 1.5
"""The largest allowed ratio of a statistic to its maximum over the permutations. For equal distributions, the
probability of a ratio above 1 is 1/300; a wrong probability or scale leads to much larger ratios."""

_LIKELY = 0.01
"""The probability above which equal draws are no evidence of a difference."""

_PERMUTATIONS = 300
_MOST_ELEMENTS = 4096
_NEGLIGIBLE = 1e-3
"""A smaller difference of the means, in squared standard deviations, or of the spreads is a rounding."""


def _largest_gap(order: np.ndarray, close: np.ndarray, labels: np.ndarray) -> float:
    """The Kolmogorov-Smirnov statistic of the pooled elements of the runs labelled True against the others'.

    Args:
        order: The run of each element, elements sorted by value.
        close: The last position whose value is equal to each element's, apart from rounding.
        labels: The runs of the first sample.
    """
    per_run = len(order) / len(labels)
    first = np.cumsum(labels[order]) / (labels.sum() * per_run)
    second = np.cumsum(~labels[order]) / ((~labels).sum() * per_run)
    return float(max((first - second[close]).max(), (second - first[close]).max()))


def _mean_gap(runs: np.ndarray, labels: np.ndarray, tolerance: np.ndarray) -> float:
    """The squared difference of the means in units of each element's variance, summed over the elements.

    It detects draws assigned to the wrong elements, and elements that do not vary but differ.
    """
    first, second = runs[labels], runs[~labels]
    gap = np.abs(first.mean(axis=0) - second.mean(axis=0)) - tolerance
    variance = (first.var(axis=0) + second.var(axis=0)) / 2 + tolerance.max() ** 2
    return float((np.square(np.maximum(gap, 0.0)) / variance).sum())


def _spread_gap(runs: np.ndarray, labels: np.ndarray, tolerance: np.ndarray) -> float:
    """The difference of the mean distances from each element's mean, in units of its standard deviation."""
    spread = (np.abs(runs - runs.mean(axis=0)) / (runs.std(axis=0) + tolerance.max())).mean(axis=1)
    return float(abs(spread[labels].mean() - spread[~labels].mean()))


def compare_runs(engine: Sequence[np.ndarray], torch: Sequence[np.ndarray], seed: int = 0) -> str:
    """Compare several runs of each side on one input by a permutation test.

    The runs are independent, but the elements of one run need not be (one random factor may scale all of them).
    Therefore runs are permuted between the two sides, not elements. There are three statistics: the Kolmogorov-Smirnov
    distance of the pooled elements, and the differences of the elements' means and of their spread.

    Args:
        engine: The engine's results, one array per run, all of one shape.
        torch: PyTorch's results, one array per run.
        seed: The seed of the permutations.

    Returns:
        Why the distributions differ; empty if they don't.
    """
    random = np.random.default_rng(seed)
    flat = np.stack([np.asarray(run, np.float64).reshape(-1) for run in (*engine, *torch)])
    if flat.shape[1] == 0:
        return ""
    labels = np.arange(len(flat)) < len(engine)
    if np.isfinite(flat[labels]).mean() < 0.99 * np.isfinite(flat[~labels]).mean():
        return "the engine's results are not finite where PyTorch's are"
    flat = np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)
    if flat.shape[1] > _MOST_ELEMENTS:
        flat = flat[:, np.sort(random.choice(flat.shape[1], _MOST_ELEMENTS, replace=False))]
    if not (np.ptp(flat[labels], axis=0) > 0).any() and _chance_of_equal(flat[~labels], len(engine)) < _LIKELY:
        return "the engine draws the same numbers in every run; PyTorch draws new ones"
    return _by_permutation(flat, labels, random)


def _chance_of_equal(runs: np.ndarray, count: int) -> float:
    """An upper bound of the probability that ``count`` draws of every element are equal, estimated from ``runs``.

    Bernoulli samples with a probability near 0 or 1 are often all equal.
    """
    ordered = np.sort(runs, axis=0)
    longest, streak = np.ones(runs.shape[1]), np.ones(runs.shape[1])
    for before, after in itertools.pairwise(ordered):
        streak = np.where(before == after, streak + 1, 1)
        longest = np.maximum(longest, streak)
    return float((longest / len(runs)).min() ** count)


def _by_permutation(flat: np.ndarray, labels: np.ndarray, random: np.random.Generator) -> str:
    tolerance = np.maximum(1e-5 * np.abs(flat).max(axis=0), 1e-30)
    order = np.argsort(flat, axis=None, kind="stable")
    values, runs = flat.reshape(-1)[order], order // flat.shape[1]
    close = np.searchsorted(values, values + 1e-6 * np.abs(flat).max(), side="right") - 1
    shuffles = [random.permutation(labels) for _ in range(_PERMUTATIONS)]
    gap = _largest_gap(runs, close, labels)
    chance = max(1e-9, *(_largest_gap(runs, close, shuffled) for shuffled in shuffles[:100]))
    if gap > LARGEST_CHANCE_EXCESS * chance:
        return f"the distributions differ: Kolmogorov-Smirnov distance {gap:.3g}, by chance at most {chance:.3g}"
    for name, statistic in (("means", _mean_gap), ("spreads", _spread_gap)):
        gap = statistic(flat, labels, tolerance)
        chance = max(_NEGLIGIBLE, *(statistic(flat, shuffled, tolerance) for shuffled in shuffles))
        if gap > LARGEST_CHANCE_EXCESS * chance:
            return f"the elements' {name} differ: {gap:.3g}, by chance at most {chance:.3g}"
    return ""
