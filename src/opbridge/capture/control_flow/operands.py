"""The inputs of the subgraphs of one operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opbridge.capture.control_flow.values import as_scalar
from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.subgraphs import symbols_outside, untracked

__all__ = ["Operands"]


_DTYPES = {torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
"""Dynamic numbers that torch passes to no subgraph, and the dtype of the tensors that it gets in their place."""


class Operands:
    """Tensors and sizes of the program outside, each once."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def add(self, *values: Any) -> None:
        """Add tensors and dynamic numbers; a constant needs no input."""
        for value in values:
            if isinstance(value, (Tensor, torch.SymInt, *_DTYPES)):
                self._values.setdefault(_key(value), value)

    def add_sizes(self, sizes: Sequence[Any]) -> None:
        """Add the symbols of these sizes."""
        self.add(*symbols_outside(sizes))

    def values(self) -> tuple[Any, ...]:
        """The inputs, as parts of the captured program: a tensor with data is not one.

        torch refuses inputs that share memory, so each one but the first is a copy.
        """
        shared: set[int] = set()
        return tuple(_own(value, shared) for value in self._values.values())

    def share(self, tensors: Sequence[Tensor]) -> bool:
        """Whether one of these tensors may have elements in common with another one, or with another input."""
        inputs = [value for value in self._values.values() if isinstance(value, Tensor)]
        with untracked():
            return any(_may_overlap(one, other) for one in tensors for other in (*inputs, *tensors))

    def lookup(self, inputs: Sequence[Any]) -> Callable[[Any], Any]:
        """A function from a value outside to the subgraph's input that has it."""
        given = {
            key: one.item() if type(value) in _DTYPES else one
            for (key, value), one in zip(self._values.items(), inputs, strict=True)
        }
        return lambda value: given.get(_key(value), value)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _may_overlap(one: Tensor, other: Tensor) -> bool:
    if one is other or _memory(one) != _memory(other):
        return False
    (first, last), (other_first, other_last) = _places(one), _places(other)
    return not (statically_known_true(last < other_first) or statically_known_true(other_last < first))


def _places(tensor: Tensor) -> tuple[Any, Any]:
    """The places in memory of the first and the last element."""
    first = tensor.storage_offset()
    return first, first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _own(value: Any, shared: set[int]) -> Any:
    if type(value) in _DTYPES:
        return as_scalar(value, _DTYPES[type(value)])
    if not isinstance(value, Tensor):
        return value
    if not is_fake(value):
        return value.detach().clone()
    copied = _memory(value) in shared
    shared.add(_memory(value))
    return value.clone() if copied else value


def _key(value: Any) -> Any:
    return id(value) if isinstance(value, Tensor) else str(value)
