"""Iterables of a number of items that is known only at run time, which give the item at a position."""

from __future__ import annotations

import contextvars
import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.rows import Rows, of_parts, section
from opbridge.capture.control_flow.steps import DynamicSequence, Refused, Steps

__all__ = [
    "After",
    "Backwards",
    "Elements",
    "Numbered",
    "Pairs",
    "Pieces",
    "Product",
    "Records",
    "Sections",
    "Together",
]


_in_place: contextvars.ContextVar[bool] = contextvars.ContextVar("in_place", default=False)


class InPlace(Refused):
    """Items through which an iteration writes into a tensor: the rows of a tensor are views of it.

    An iteration reads them faster as copies.
    """

    def __init__(self, items: DynamicSequence) -> None:
        self._items = items
        self.length, self.step, self.whole_steps = items.length, items.step, items.whole_steps  # type: ignore[method-assign]

    def item(self, index: Tensor) -> Any:
        """The item at a position."""
        token = _in_place.set(True)
        try:
            return self._items.item(index)
        finally:
            _in_place.reset(token)


class Elements(Refused):
    """The elements of a tensor along its first dimension, as tensors or as numbers."""

    def __init__(self, tensor: Tensor, are_numbers: bool = False, are_copies: bool = False) -> None:
        self._tensor, self._are_numbers, self._are_copies = tensor, are_numbers, are_copies
        self.length = tensor.shape[0]

    def item(self, index: Tensor) -> Any:
        """The element at a position."""
        if _in_place.get() and not self._are_copies:
            return self._tensor.select(0, Steps(0, self.length).item(index))
        element = self._tensor.index_select(0, index.reshape(1)).squeeze(0)
        if self._are_numbers:
            return element.item()
        return element.clone() if _in_place.get() else element  # A copy is no view, by which it is told apart.


class Pieces(Refused):
    """``split``: parts of a size, the last of which may be smaller."""

    def __init__(self, tensor: Tensor, size: int, dim: int) -> None:
        self._tensor, self.step, self._dim = tensor, size, dim % tensor.dim()
        self._starts = Steps(0, tensor.shape[dim], size)
        self.length = self._starts.length

    def item(self, index: Tensor) -> Tensor:
        """The part at a position."""
        return self._from(self._starts.item(index))

    def __getitem__(self, index: Any) -> Tensor:
        if not isinstance(index, int):
            return super().__getitem__(index)  # type: ignore[no-any-return]
        return self._from((index if index >= 0 else self.length + index) * self.step)

    def _from(self, start: Any) -> Tensor:
        length = self._tensor.shape[self._dim]
        are_whole = self.step == 1 or statically_known_true(length % self.step == 0)
        count = self.step if are_whole else torch.sym_min(self.step, length - start)
        return self._tensor.narrow(self._dim, start, count)

    def as_list(self) -> list[Any]:
        """The parts as elements of a list."""
        sizes = (self._tensor.shape[self._dim] - self._starts.numbers()).clamp(max=self.step)
        return [Rows(self._tensor.movedim(self._dim, 0), joined=self._dim, lengths=sizes + 1)]

    def whole_steps(self) -> tuple[DynamicSequence, Any, Any] | None:
        """The parts of the whole size, the last one, and the condition that it is smaller; None if all have size 1."""
        size, length = self.step, self._tensor.shape[self._dim]
        if size == 1:
            return None
        whole = self._tensor.narrow(self._dim, 0, length // size * size)
        rest = self._tensor.narrow(self._dim, length // size * size, length % size)
        parts = whole.unflatten(self._dim, (length // size, size)).movedim(self._dim, 0)
        return Elements(parts), rest, length % size > 0


class Sections(Refused):
    """``split``: parts of given sizes, the number of which is dynamic."""

    def __init__(self, tensor: Tensor, sizes: Tensor, dim: int) -> None:
        self._tensor, self._sizes, self._dim = tensor, sizes, dim
        self._starts = sizes.cumsum(0) - sizes
        self.length = sizes.shape[0]

    def item(self, index: Tensor) -> Tensor:
        """The part at a position."""
        start, size = (Elements(numbers, True).item(index) for numbers in (self._starts, self._sizes))
        return section(self._tensor, self._dim, start, size)


class Records(Refused):
    """The elements of a list that are tuples, dicts or the like."""

    def __init__(self, parts: Sequence[DynamicSequence], structure: Any) -> None:
        self._parts, self._structure = parts, structure
        self.length = parts[0].length

    def item(self, index: Tensor) -> Any:
        """The element at a position."""
        return of_parts([part.item(index) for part in self._parts], self._structure)


class Numbered(Refused):
    """``enumerate``."""

    def __init__(self, items: DynamicSequence, start: int) -> None:
        self._pairs = Steps(start, start + items.length), items
        self.length = items.length

    def item(self, index: Tensor) -> Any:
        """The number and the item at a position."""
        return tuple(items.item(index) for items in self._pairs)


class Together(Refused):
    """``zip``."""

    def __init__(self, sequences: Sequence[DynamicSequence]) -> None:
        self._sequences = sequences
        self.length = sequences[0].length
        for sequence in sequences[1:]:
            self.length = torch.sym_min(self.length, sequence.length)

    def item(self, index: Tensor) -> Any:
        """The items at a position."""
        return tuple(sequence.item(index) for sequence in self._sequences)


class After(Refused):
    """The items after the first."""

    def __init__(self, items: DynamicSequence) -> None:
        self._items = items
        self.length = items.length - 1

    def item(self, index: Tensor) -> Any:
        """The item at a position."""
        return self._items.item(index + 1)


class Product(Refused):
    """``itertools.product``."""

    def __init__(self, sequences: Sequence[DynamicSequence]) -> None:
        self._sequences = sequences
        self.length = functools.reduce(operator.mul, (torch.sym_max(one.length, 0) for one in sequences))

    def item(self, index: Tensor) -> Any:
        """The items at a position; those of the last sequence change first."""
        found: list[Any] = []
        for sequence in reversed(self._sequences):
            found.insert(0, sequence.item(index % sequence.length))
            index = index // sequence.length
        return tuple(found)


class Pairs(Refused):
    """``itertools.combinations`` of two."""

    def __init__(self, items: DynamicSequence) -> None:
        self._items = items
        count = torch.sym_max(items.length, 0)
        self.length = count * (count - 1) // 2
        self._ends = torch.arange(count - 1, -1, -1).cumsum(0)

    def item(self, index: Tensor) -> Any:
        """The two items at a position."""
        first = (index >= self._ends).sum()
        rest = self._ends.index_select(0, first.reshape(1)).squeeze(0) - index
        return self._items.item(first), self._items.item(self._items.length - rest)


class Backwards(Refused):
    """``reversed``."""

    def __init__(self, items: DynamicSequence) -> None:
        self._items = items
        self.length = items.length

    def item(self, index: Tensor) -> Any:
        """The item at a position, counted from the end."""
        return self._items.item(self.length - 1 - index)
