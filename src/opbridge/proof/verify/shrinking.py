"""Shrinks a failing input with Hypothesis: to small dynamic dimensions, mostly zeros, and simple numbers.

Hypothesis draws a few integers that determine which part of the failing input remains, and makes them as small as it
can while the engine still fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opbridge.proof.verify.compare import is_floating

__all__ = ["Shrinkable", "shrunk"]

Feeds = Mapping[str, np.ndarray]

_DRAWS = 60
_FEW, _MANY = 24, 1024
_LEVELS = 5


@dataclasses.dataclass(frozen=True)
class Shrinkable:
    """A failing input.

    Attributes:
        feeds: The arrays by name.
        sizes: The dynamic dimensions that may get smaller, with their sizes in ``feeds``.
        lowest: The smallest size of each dimension.
        resized: Cuts arrays to other sizes.
        fails: Whether the engine fails on some inputs in the same way.
    """

    feeds: Feeds
    sizes: Mapping[str, int]
    lowest: Mapping[str, int]
    resized: Callable[[Feeds, Mapping[str, int]], Feeds]
    fails: Callable[[Feeds], bool]


def shrunk(found: Shrinkable, seconds: float) -> Feeds:
    """The smallest failing input that is found within ``seconds``; the original input if none is found."""
    search = _Search(found, time.monotonic() + seconds)
    search.shrink_sizes()
    names = sorted(found.feeds, key=lambda name: -np.asarray(found.feeds[name]).size)
    for name in names:
        search.zero_outside(name)
    for name in names:
        search.zero_single(name)
        search.simplify(name)
    return search.feeds


class _Search:
    def __init__(self, found: Shrinkable, deadline: float) -> None:
        self.found = found
        self.feeds = found.feeds
        self.deadline = deadline

    def _find(self, strategy: Any, make: Callable[[Any], Feeds], cost: Callable[[Any], Any]) -> Any | None:
        """Take the drawn value of the lowest cost whose inputs fail; None if no inputs fail."""
        import hypothesis

        best: list[tuple[Any, Any, Feeds]] = []

        def fails(drawn: Any) -> bool:
            # After the deadline no input counts as failing, so the search ends.
            if time.monotonic() > self.deadline:
                return False
            feeds = make(drawn)
            if not self.found.fails(feeds):
                return False
            if not best or cost(drawn) < best[0][0]:
                best[:] = [(cost(drawn), drawn, feeds)]
            return True

        settings = hypothesis.settings(
            max_examples=_DRAWS,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        # Hypothesis raises if nothing is found or if a failure does not repeat; ``best`` has the failing value.
        with contextlib.suppress(hypothesis.errors.HypothesisException):
            hypothesis.find(strategy, fails, settings=settings)
        if not best:
            return None
        self.feeds = best[0][2]
        return best[0][1]

    def shrink_sizes(self) -> None:
        """Make the dynamic dimensions small."""
        from hypothesis import strategies

        sizes = {name: size for name, size in self.found.sizes.items() if self.found.lowest[name] < size}
        if sizes:
            drawn = strategies.fixed_dictionaries(
                {name: strategies.integers(self.found.lowest[name], size) for name, size in sizes.items()}
            )
            feeds = self.feeds
            self._find(
                drawn,
                lambda values: self.found.resized(feeds, {**self.found.sizes, **values}),
                lambda values: sum(values.values()),
            )

    def zero_outside(self, name: str) -> None:
        """Keep one contiguous range of the elements of an input, and replace the others by zeros."""
        from hypothesis import strategies

        whole = np.asarray(self.feeds[name])
        if not np.count_nonzero(whole):
            return
        ends = strategies.integers(0, whole.size)
        # The end of the range is drawn first, so Hypothesis shrinks first the end and then the length.
        self._find(
            strategies.tuples(ends, ends),
            lambda drawn: self._with(name, _only(whole, range(max(0, drawn[0] - drawn[1]), drawn[0]))),
            min,
        )

    def zero_single(self, name: str) -> None:
        """Keep as few elements as possible, if there are few that are not zero."""
        from hypothesis import strategies

        whole = np.asarray(self.feeds[name])
        places = np.flatnonzero(whole)
        if 1 < places.size <= _FEW:
            kept = strategies.lists(strategies.booleans(), min_size=places.size, max_size=places.size)
            self._find(
                kept,
                lambda drawn: self._with(name, _only(whole, places[np.array(drawn, bool)])),
                lambda drawn: sum(drawn),
            )

    def simplify(self, name: str) -> None:
        """Replace the remaining numbers by simpler ones: first all at the same level, then one by one."""
        from hypothesis import strategies

        whole = np.asarray(self.feeds[name])
        places = np.flatnonzero(whole)
        if not 0 < places.size <= _MANY or whole.dtype == bool:
            return
        levels = strategies.integers(0, _LEVELS - 1)
        together = lambda level: self._with(name, _simplified(whole, places, [level] * len(places)))  # noqa: E731
        level = self._find(levels, together, int)
        if 1 < places.size <= _FEW and level != 0:
            each = strategies.lists(levels, min_size=places.size, max_size=places.size)
            self._find(
                each, lambda drawn: self._with(name, _simplified(whole, places, drawn)), lambda drawn: sum(drawn)
            )

    def _with(self, name: str, array: np.ndarray) -> Feeds:
        return {**self.feeds, name: array}


def _only(whole: np.ndarray, places: Sequence[int] | np.ndarray | range) -> np.ndarray:
    """``whole`` with zeros everywhere except at ``places``."""
    flat = np.zeros(whole.size, whole.dtype)
    chosen = np.asarray(places, np.int64)
    flat[chosen] = whole.reshape(-1)[chosen]
    return flat.reshape(whole.shape)


def _simplified(whole: np.ndarray, places: np.ndarray, levels: Sequence[int]) -> np.ndarray:
    flat = whole.reshape(-1).copy()
    for place, level in zip(places, levels, strict=True):
        flat[place] = _simple(flat[place], level)
    return flat.reshape(whole.shape)


def _simple(value: Any, level: int) -> Any:
    """A number near ``value``; the levels are 1, a power of ten, an integer, two significant digits, and ``value``."""
    number = float(value)
    if level == _LEVELS - 1 or not np.isfinite(number) or not number:
        return value
    sign = 1.0 if number > 0 else -1.0
    powers = 10.0 ** np.floor(np.log10(abs(number)))
    simple = (sign, sign * powers, round(number) or sign, float(f"{number:.2g}"))[level]
    if not is_floating(np.asarray(value).dtype):
        return int(simple)
    with np.errstate(over="ignore"):
        narrow = np.asarray(simple).astype(np.asarray(value).dtype)
    return narrow if np.isfinite(narrow.astype(np.float64)) else value
