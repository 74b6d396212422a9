"""Tensors that lose or gain elements in an iteration of a loop.

The graph of a loop takes tensors of one shape. A tensor that changes its size has the largest one there, filled up with
zeros, and the number of its elements, which tensors of the same number share::

    while boxes.shape[0] > 0:                       n = boxes.shape[0]
        boxes = boxes[overlaps(boxes) < 0.5]   ->   while n > 0:
                                                        left = boxes[:n][overlaps(boxes[:n]) < 0.5]
                                                        n, boxes = left.shape[0], torch.cat([left, zeros])

The largest size of a tensor that loses elements is the one before the loop. For one that gains elements, the largest
number of iterations and of elements that one iteration adds must be known.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from opbridge.torch_graph.largest_sizes import largest, note_range, smallest
from opbridge.torch_graph.subgraphs import symbols_tracked, untracked

__all__ = ["ResizedTensors"]

_FEW = 64
"""If the number of elements before a loop depends on data and is at most this, there is room for the largest number.

Otherwise, where it is at most 1 and an iteration takes an element, torch would conclude that it is 1 before the loop.
"""

_Key = tuple[int, int]
"""The number of a variable, and the position of a tensor in it."""


@dataclasses.dataclass
class _Number:
    """A number of elements that iterations change.

    Attributes:
        first: The number before the loop.
        room: The number before the loop, or the largest that it may be.
        most: The largest number.
        gained: By how much an iteration raises it at most; None if iterations only lower it.
        loses: Whether an iteration may lower it.
        now: The number at the beginning of the traced iteration.
        left: The number at its end; None while no tensor has it.
    """

    first: Any
    room: Any
    most: Any
    gained: Any
    loses: bool
    now: Any
    left: Any


class ResizedTensors:
    """The tensors of a loop that lose or gain elements along a dimension.

    Args:
        before: The tensors before the loop.

    Attributes:
        changed: Whether tensors were found whose number is another than the one that they seemed to share.
    """

    def __init__(self, before: Mapping[_Key, Tensor]) -> None:
        self._rooms = {key: tuple(map(_room, tensor.shape)) for key, tensor in before.items()}
        self._numbers: list[_Number] = []
        self._of: dict[_Key, tuple[int, _Number]] = {}
        self._unlimited: set[_Key] = set()
        self._symbols = symbols_tracked()
        self._length: Any = None
        self.changed = False

    def __len__(self) -> int:
        """How many different numbers of elements they have."""
        return len(self._numbers)

    def __contains__(self, key: _Key) -> bool:
        """Whether a tensor is one of them."""
        return key in self._of

    def most(self) -> Any:
        """The number of iterations after which none has an element if each iteration takes one; None without any."""
        return functools.reduce(torch.sym_max, (number.most for number in self._numbers)) if self._numbers else None

    def add(self, key: _Key, before: Sequence[Any], after: Sequence[Any], length: Any) -> tuple[Any, ...] | None:
        """Take a tensor with these shapes before and after an iteration.

        Args:
            key: The tensor.
            before: Its shape before the iteration.
            after: Its shape after it.
            length: The largest number of iterations; None if it is not known.

        Returns:
            The shape of the tensor in the graph; None if it does not lose or gain elements of one dimension.
        """
        different = [dim for dim, (x, y) in enumerate(zip(before, after, strict=False)) if not _equal(x, y)]
        if len(before) != len(after) or len(different) != 1 or key in self._of or key in self._unlimited:
            return None
        (dim,) = different
        self._length = length
        gained, loses = self._change(before[dim], after[dim])
        if gained is None and not loses:
            return None
        number = self._number(before[dim], self._rooms[key][dim], gained, loses, after[dim])
        self._of[key] = dim, number
        return (*before[:dim], number.most, *before[dim + 1 :])

    def _change(self, before: Any, after: Any) -> tuple[Any, bool]:
        """How many elements an iteration adds at most, None for no element or any number, and whether it removes some.

        If it removes some, it is taken to add none in a loop without a largest number of iterations, or if the number
        depends on sizes: for a selection, the largest number is often too large.
        """
        known = self._symbols | free_unbacked_symbols(before)
        with untracked():
            least, most = smallest(after, known), largest(after, known)
            loses = least is None or not statically_known_true(least >= before)
            gained = None if most is None else _constant(most - before)
        if gained is None or self._length is None or not free_unbacked_symbols(gained) <= self._symbols:
            return None, loses
        is_limit = isinstance(gained, int) or not loses
        return gained if is_limit and not statically_known_true(gained <= 0) else None, loses

    def _most(self, room: Any, gained: Any) -> Any:
        return room if gained is None else room + gained * torch.sym_max(self._length, 0)

    def _number(self, first: Any, room: Any, gained: Any, loses: bool, left: Any) -> _Number:
        most = self._most(room, gained)
        for number in self._numbers:
            if _equal(number.first, first) and _equal(number.most, most) and _equal(number.left, left):
                return number
        self._numbers.append(_Number(first, room, most, gained, loses, first, left))
        return self._numbers[-1]

    def before(self) -> list[Tensor]:
        """The numbers of elements before the loop: int64, of rank 0."""
        return [_as_tensor(number.first) for number in self._numbers]

    def after(self) -> list[Tensor]:
        """The numbers of elements after an iteration: int64, of rank 0."""
        return [_as_tensor(number.left) for number in self._numbers]

    def begin(self, numbers: Sequence[Tensor]) -> None:
        """Begin an iteration, or what follows the loop, with these numbers of elements."""
        self.changed = False
        for number, given in zip(self._numbers, numbers, strict=True):
            now: Any = given.item()
            least = 0 if number.loses else number.first
            torch._check(now >= least)
            torch._check(now <= number.most)
            note_range(now, [least, number.most], self._symbols)
            number.now, number.left = now, None

    def shortened(self, key: _Key, tensor: Any) -> Any:
        """A tensor of the graph without the zeros at its end; any other value as it is."""
        if key not in self._of:
            return tensor
        dim, number = self._of[key]
        return tensor.narrow(dim, 0, number.now)

    def filled(self, key: _Key, value: Any) -> Any:
        """A tensor after an iteration as the graph takes it; any other value as it is."""
        if key not in self._of:
            return value
        dim, number = self._of[key]
        left = value.shape[dim]
        gained, loses = self._change(number.now, left)
        gains = gained is not None and (number.gained is None or not statically_known_true(gained <= number.gained))
        if number.gained is not None and gained is None and not loses:
            self._remove(key)
            return value
        if gains:
            number.gained, number.most = gained, self._most(number.room, gained)
            self.changed = True
        self.changed |= loses and not number.loses
        number.loses |= loses
        if number.left is not None and not _equal(number.left, left):
            number = dataclasses.replace(number, left=left)
            self._numbers.append(number)
            self._of[key] = dim, number
            self.changed = True
        number.left = left
        torch._check(left <= number.most)
        return _padded(value, dim, number.most)

    def _remove(self, key: _Key) -> None:
        """Leave out a tensor that gains elements without a largest number."""
        _, number = self._of.pop(key)
        self._unlimited.add(key)
        if not any(other is number for _, other in self._of.values()):
            self._numbers = [other for other in self._numbers if other is not number]

    def start(self, key: _Key, tensor: Tensor) -> Tensor:
        """A tensor before the loop as the graph takes it."""
        dim, number = self._of.get(key, (0, None))
        return tensor if number is None or number.most is number.first else _padded(tensor, dim, number.most)


def _room(size: Any) -> Any:
    bound = largest(size, frozenset())
    return bound if isinstance(bound, int) and bound <= _FEW else size


def _padded(tensor: Tensor, dim: int, size: Any) -> Tensor:
    shape = list(tensor.shape)
    shape[dim] = size - tensor.shape[dim]
    return torch.cat([tensor, tensor.new_zeros(shape)], dim)


def _constant(size: Any) -> Any:
    """A size; as an int if it is the same for all sizes."""
    return int(size.node.expr) if isinstance(size, torch.SymInt) and size.node.expr.is_number else size


def _as_tensor(number: Any) -> Tensor:
    return torch.full((), number, dtype=torch.int64)


def _equal(a: Any, b: Any) -> bool:
    return a is not None and b is not None and statically_known_true(a == b)
