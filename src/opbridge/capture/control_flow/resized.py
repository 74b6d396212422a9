"""Tensors that lose or gain elements in an iteration of a loop.

The graph of a loop takes tensors of one shape. A tensor that changes its size has the largest one there, filled up with
zeros, and the number of its elements, which tensors of the same number share::

    while boxes.shape[0] > 0:                       n = boxes.shape[0]
        boxes = boxes[overlaps(boxes) < 0.5]   ->   while n > 0:
                                                        left = boxes[:n][overlaps(boxes[:n]) < 0.5]
                                                        n, boxes = left.shape[0], torch.cat([left, zeros])

The largest size of a tensor that loses elements is the one before the loop. One that gains elements gains as many in
each iteration, of which the largest number must be known.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

__all__ = ["ResizedTensors"]

_Key = tuple[int, int]
"""The number of a variable, and the position of a tensor in it."""


@dataclasses.dataclass
class _Number:
    """A number of elements that iterations change.

    Attributes:
        first: The number before the loop.
        most: The largest number.
        gained: By how much each iteration raises it; None if iterations lower it.
        now: The number at the beginning of the traced iteration.
        left: The number at its end; None while no tensor has it.
    """

    first: Any
    most: Any
    gained: Any
    now: Any
    left: Any


class ResizedTensors:
    """The tensors of a loop that lose or gain elements along a dimension.

    Attributes:
        changed: Whether tensors were found whose number is another than the one that they seemed to share.
    """

    def __init__(self) -> None:
        self._numbers: list[_Number] = []
        self._of: dict[_Key, tuple[int, _Number]] = {}
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
        if len(before) != len(after) or len(different) != 1 or key in self._of:
            return None
        (dim,) = different
        most, gained = before[dim], None
        if statically_known_true(after[dim] >= before[dim]):
            gained = _constant(after[dim] - before[dim])
            if length is None or free_unbacked_symbols(gained) - free_unbacked_symbols([*before, length]):
                return None
            most = before[dim] + gained * torch.sym_max(length, 0)
        self._of[key] = dim, self._number(before[dim], most, gained, after[dim])
        return (*before[:dim], most, *before[dim + 1 :])

    def _number(self, first: Any, most: Any, gained: Any, left: Any) -> _Number:
        for number in self._numbers:
            if _equal(number.first, first) and _equal(number.most, most) and _equal(number.left, left):
                return number
        self._numbers.append(_Number(first, most, gained, first, left))
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
            now = given.item()
            torch._check(now >= (0 if number.gained is None else number.first))
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
        if number.gained is not None and not _equal(left, number.now + number.gained):
            del self._of[key]  # It does not gain as many elements as before, so that there is no largest number.
            return value
        if number.left is not None and not _equal(number.left, left):
            number = dataclasses.replace(number, left=left)
            self._numbers.append(number)
            self._of[key] = dim, number
            self.changed = True
        number.left = left
        torch._check(left <= number.most)
        return _padded(value, dim, number.most)

    def start(self, key: _Key, tensor: Tensor) -> Tensor:
        """A tensor before the loop as the graph takes it."""
        dim, number = self._of.get(key, (0, None))
        return tensor if number is None or number.gained is None else _padded(tensor, dim, number.most)


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
