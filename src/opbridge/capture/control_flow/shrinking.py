"""Tensors that lose elements in an iteration of a loop.

The graph of a loop takes tensors of one shape. A tensor that loses elements has the shape there that it has before the
loop, filled up with zeros, and the number of its elements, which tensors that lose the same elements share::

    while boxes.shape[0] > 0:                       n = boxes.shape[0]
        boxes = boxes[overlaps(boxes) < 0.5]   ->   while n > 0:
                                                        left = boxes[:n][overlaps(boxes[:n]) < 0.5]
                                                        n, boxes = left.shape[0], torch.cat([left, zeros])
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["ShrinkingTensors"]

_Key = tuple[int, int]
"""The number of a variable, and the position of a tensor in it."""


@dataclasses.dataclass
class _Number:
    """A number of elements that iterations change.

    Attributes:
        most: The number before the loop.
        now: The number at the beginning of the traced iteration.
        left: The number at its end; None while no tensor has it.
    """

    most: Any
    now: Any
    left: Any


class ShrinkingTensors:
    """The tensors of a loop that lose elements along a dimension.

    Attributes:
        changed: Whether tensors were found that lose other elements than those they seemed to share a number with.
    """

    def __init__(self) -> None:
        self._numbers: list[_Number] = []
        self._of: dict[_Key, tuple[int, _Number]] = {}
        self.changed = False

    def __len__(self) -> int:
        """How many different numbers of elements they have."""
        return len(self._numbers)

    def most(self) -> Any:
        """The number of iterations after which none has an element if each iteration takes one; None without any."""
        return functools.reduce(torch.sym_max, (number.most for number in self._numbers)) if self._numbers else None

    def add(self, key: _Key, before: Sequence[Any], after: Sequence[Any]) -> bool:
        """Take a tensor with these shapes before and after an iteration; False if it does not lose elements."""
        different = [dim for dim, (x, y) in enumerate(zip(before, after, strict=False)) if not _equal(x, y)]
        if len(before) != len(after) or len(different) != 1 or key in self._of:
            return False
        (dim,) = different
        if statically_known_true(after[dim] >= before[dim]):
            return False
        self._of[key] = dim, self._number(before[dim], after[dim])
        return True

    def _number(self, most: Any, left: Any) -> _Number:
        for number in self._numbers:
            if _equal(number.most, most) and _equal(number.left, left):
                return number
        self._numbers.append(_Number(most, most, left))
        return self._numbers[-1]

    def before(self) -> list[Tensor]:
        """The numbers of elements before the loop: int64, of rank 0."""
        return [_as_tensor(number.most) for number in self._numbers]

    def after(self) -> list[Tensor]:
        """The numbers of elements after an iteration: int64, of rank 0."""
        return [_as_tensor(number.left) for number in self._numbers]

    def begin(self, numbers: Sequence[Tensor]) -> None:
        """Begin an iteration, or what follows the loop, with these numbers of elements."""
        self.changed = False
        for number, given in zip(self._numbers, numbers, strict=True):
            now = given.item()
            torch._check(now >= 0)
            torch._check(now <= number.most)
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
        if number.left is not None and not _equal(number.left, left):
            number = _Number(number.most, number.now, left)
            self._numbers.append(number)
            self._of[key] = dim, number
            self.changed = True
        number.left = left
        torch._check(left <= number.most)
        shape = list(value.shape)
        shape[dim] = number.most - left
        return torch.cat([value, value.new_zeros(shape)], dim)


def _as_tensor(number: Any) -> Tensor:
    return torch.full((), number, dtype=torch.int64)


def _equal(a: Any, b: Any) -> bool:
    return a is not None and b is not None and statically_known_true(a == b)
