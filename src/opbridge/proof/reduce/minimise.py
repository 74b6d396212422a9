"""Delta debugging: finds a minimal part of a list that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["minimise"]

T = TypeVar("T")


def minimise(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Find a failing part of ``items``, in their order, from which no single item can be removed.

    Binary search shortens the list first at the end, then at the beginning; a single faulty item is found in a
    logarithmic number of tries. The remaining items are thinned out (Zeller and Hildebrandt, "Simplifying and isolating
    failure-inducing input", 2002).

    Args:
        items: A list that fails.
        fails: A function that returns whether a part of the list fails.
    """
    return _thinned(_without_beginning(_without_end(list(items), fails), fails), fails)


def _without_end(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    low, high = 1, len(items)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(items[:middle]) else (middle + 1, high)
    return items[:high]


def _without_beginning(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fails(items[middle:]) else (low, middle - 1)
    return items[low:]


def _thinned(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    size = len(items) // 2
    while size:
        start = 0
        while start < len(items):
            rest = items[:start] + items[start + size :]
            if rest and fails(rest):
                items = rest
            else:
                start += size
        size = min(size // 2, len(items) // 2)
    return items
