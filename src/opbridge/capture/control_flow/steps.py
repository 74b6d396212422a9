"""``range`` with numbers that are known only at run time, and what all iterables of such a length have."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.list_uses import refuse_use
from opbridge.torch_graph.largest_sizes import note_range
from opbridge.torch_graph.subgraphs import symbols_tracked, untracked

__all__ = ["DynamicSequence", "NoWholeStep", "Refused", "Steps", "known_length", "varies"]

_MOST_KNOWN = 16


class DynamicSequence(Protocol):
    """An iterable whose length is a dynamic number.

    Attributes:
        length: The number of items; a negative number counts as 0.
        step: The step of a range, or the size of parts; 1 for any other.
    """

    length: Any
    step: int

    def item(self, index: Tensor) -> Any:
        """The item at a position, an int64 tensor of rank 0."""

    def whole_steps(self) -> tuple[DynamicSequence, Any, Any] | None:
        """The items of one size, the last item, which may be smaller, and whether it is; None if all are alike."""


def varies(size: Any) -> bool:
    """Whether a size is a dynamic number, and not one that something has made constant."""
    return isinstance(size, torch.SymInt) and not size.node.expr.is_number


def known_length(length: Any) -> int | None:
    """The number that a dynamic number is at all declared sizes, such as ``(n + 127) // 128`` if n is at most 128.

    None if it has several values or a large one.
    """
    count = next((count for count in range(_MOST_KNOWN) if not statically_known_true(length > count)), _MOST_KNOWN)
    return count if statically_known_true(length <= count) else None


class Refused:
    """Refuses to be used by Python code that was not converted.

    Attributes:
        step: The step of a range, or the size of parts.
    """

    step = 1

    def __iter__(self) -> Any:
        raise refuse_use("code that takes its elements one by one, in another way than a for statement,")

    def __getitem__(self, index: Any) -> Any:
        raise refuse_use("a subscript")

    def whole_steps(self) -> tuple[DynamicSequence, Any, Any] | None:
        """None: all items are alike."""
        return None


class Steps(Refused):
    """``range`` with dynamic numbers."""

    def __init__(self, start: Any, stop: Any, step: int = 1) -> None:
        self.start = start
        self.stop = stop
        self.step = step
        if step == 1:
            self.length = stop - start
        elif step > 0:
            self.length = (stop - start + step - 1) // step
        else:
            self.length = (start - stop - step - 1) // -step

    def item(self, index: Tensor) -> Any:
        """The number at a position."""
        number: Any = index.item()
        torch._check(number >= 0)
        self._state_limit(number)
        if isinstance(number, torch.SymInt):
            known = symbols_tracked()
            with untracked():
                note_range(number, (0, self.length - 1), known)
        return self.start + number * self.step if self.step != 1 else self.start + number

    def numbers(self, **options: Any) -> Tensor:
        """All numbers, as ``torch.arange``, which refuses a range without any."""
        furthest = torch.sym_max if self.step > 0 else torch.sym_min
        is_known = self.step > 0 and statically_known_true(self.stop >= self.start)
        stop = self.stop if is_known else furthest(self.start, self.stop)
        return torch.arange(self.start, stop, self.step, **options)

    def _state_limit(self, number: Any) -> None:
        with contextlib.suppress(AssertionError):  # torch's, if the example has no item.
            torch._check(number < self.length)

    def whole_steps(self) -> tuple[DynamicSequence, Any, Any] | None:
        """The steps that end before ``stop``, the rest if there is one, and the condition for that; None for others."""
        if self.step < 2 or not statically_known_true(self.stop >= self.start):
            return None
        whole = _WholeSteps(self.start, self.stop, self.step)
        return whole, self.start + whole.length * self.step, (self.stop - self.start) % self.step > 0


class NoWholeStep(Exception):
    """The example has no whole step, so that nothing can be stated about one."""


class _WholeSteps(Steps):
    """The numbers of a range after which a whole step is left."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        super().__init__(start, stop, step)
        self.length = (stop - start) // step

    def _state_limit(self, number: Any) -> None:
        try:
            torch._check(number < self.length)
            torch._check(self.start + (number + 1) * self.step <= self.stop)
        except AssertionError as error:  # torch's, if it contradicts the example.
            raise NoWholeStep from error
