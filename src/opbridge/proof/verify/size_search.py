"""The search for other sizes of the dynamic dimensions that a reference accepts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["SizeSearch", "SizesToTry", "shortened_refusals"]

_T = TypeVar("_T")

_MOST_REFUSED = 24
_MOST_SECONDS = 60.0
_MOST_TIMES_THE_EXAMPLE = 4
_MOST_ELEMENTS = 2**22


class SizesToTry(Protocol):
    """The dynamic dimensions of a model, and sizes of them."""

    @property
    def base(self) -> Mapping[str, int]:
        """The size of every dimension in the example."""

    @property
    def from_one(self) -> Sequence[str]:
        """The dimensions that must be right at the size 1."""

    def candidates(self, name: str, direction: int) -> Sequence[int]:
        """Other sizes of one dimension, the first to be tried first; larger ones first for 1, smaller ones for -1."""

    def allowed(self, sizes: Mapping[str, int]) -> bool:
        """Whether the declared ranges allow these sizes."""

    def others(self, direction: int, done: Sequence[Mapping[str, int]]) -> Iterator[dict[str, int]]:
        """Assignments with every dimension at another size, for dimensions that can't vary independently."""


class SizeSearch(Generic[_T]):
    """Varies each dimension alone, then all of them together, and tries the size 1 where it was declared.

    The number of trials, the time of those that are refused, and the number of elements are limited. Each dimension has
    its own step, so that a dimension that must be a multiple of 32 does not make the others as large.

    Args:
        sizes: The dimensions.
        attempt: Runs the reference at some sizes and returns its result, or None if it refuses them.
        elements: The number of elements of all inputs at some sizes.

    Attributes:
        done: The sizes that were accepted, first those of the example.
    """

    def __init__(
        self,
        sizes: SizesToTry,
        attempt: Callable[[Mapping[str, int]], _T | None],
        elements: Callable[[Mapping[str, int]], int],
    ) -> None:
        self._sizes = sizes
        self._attempt = attempt
        self._elements = elements
        self._base = dict(sizes.base)
        self._most_elements = max(_MOST_ELEMENTS, _MOST_TIMES_THE_EXAMPLE * elements(self._base))
        self._steps: dict[str, int] = {}
        self.done: list[dict[str, int]] = [self._base]

    def results(self) -> Iterator[_T | None]:
        """The result at each accepted assignment; None if no assignment of a step was accepted."""
        if len(self._base) > 1:
            for name in self._base:
                result = self._first({**self._base, name: size} for size in self._near(name))
                if result is not None:
                    self._steps[name] = self.done[-1][name] - self._base[name]
                    yield result
        for direction in (1, -1):
            yield self._first(self._together(direction))
        at_one = [name for name in self._sizes.from_one if all(sizes[name] != 1 for sizes in self.done)]
        if at_one:
            apart = ({**self._base, name: 1} for name in at_one)
            yield self._first(itertools.chain([{**self._base, **dict.fromkeys(at_one, 1)}], apart))

    def unmoved(self) -> list[str]:
        """The dimensions that have other sizes in their ranges, of which none was accepted."""
        return [
            name
            for name, size in self._base.items()
            if all(sizes[name] == size for sizes in self.done) and any(self._near(name))
        ]

    def _near(self, name: str) -> Iterator[int]:
        for direction in (1, -1):
            for size in self._sizes.candidates(name, direction):
                if self._is_possible({**self._base, name: size}):
                    yield size

    def _together(self, direction: int) -> Iterator[dict[str, int]]:
        """All dimensions by multiples of the steps at which each was accepted alone, then by any steps."""
        if self._steps and len(self._steps) == len(self._base):
            # Sizes that are all even in the example are all odd one step below it.
            for times in (2, 1, 3) if direction > 0 else (-1, -2, 3):
                yield {name: self._base[name] + times * step for name, step in self._steps.items()}
        yield from self._sizes.others(direction, self.done)

    def _first(self, trials: Iterator[dict[str, int]]) -> _T | None:
        refused, seconds = 0, 0.0
        for sizes in trials:
            if sizes in self.done or not self._is_possible(sizes):
                continue
            if refused >= _MOST_REFUSED or seconds > _MOST_SECONDS:
                break
            started = time.perf_counter()
            result = self._attempt(sizes)
            if result is not None:
                self.done.append(sizes)
                return result
            refused += 1
            seconds += time.perf_counter() - started
        return None

    def _is_possible(self, sizes: Mapping[str, int]) -> bool:
        return (
            min(sizes.values(), default=1) > 0
            and self._sizes.allowed(sizes)
            and self._elements(sizes) <= self._most_elements
        )


def shortened_refusals(refused: Sequence[str]) -> list[str]:
    """The first refusal and the number of the others; empty if there is none."""
    others = f" ({len(refused) - 1} more sizes were refused)" if len(refused) > 1 else ""
    return [refused[0] + others] if refused else []
