"""The inputs of the subgraphs of one operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opbridge.capture.control_flow.values import as_scalar
from opbridge.torch_graph.internals import is_fake
from opbridge.torch_graph.subgraphs import symbols_outside

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

    def shares(self, tensors: Sequence[Tensor]) -> bool:
        """Whether one of these tensors shares memory with another input."""
        inputs = [_memory(value) for value in self._values.values() if isinstance(value, Tensor)]
        return any(inputs.count(_memory(tensor)) > 1 for tensor in tensors)

    def lookup(self, inputs: Sequence[Any]) -> Callable[[Any], Any]:
        """A function from a value outside to the subgraph's input that has it."""
        given = {
            key: one.item() if type(value) in _DTYPES else one
            for (key, value), one in zip(self._values.items(), inputs, strict=True)
        }
        return lambda value: given.get(_key(value), value)


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


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
