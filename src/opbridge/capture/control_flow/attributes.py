"""Attributes of modules and other objects that a branch or a loop changes in a method, such as a decoder's state."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opbridge.capture.control_flow.state import State
from opbridge.capture.control_flow.trees import attributes_of, objects_in
from opbridge.capture.control_flow.values import UNDEFINED, same_shape
from opbridge.torch_graph.subgraphs import untracked

__all__ = ["Attributes", "NoValueBefore"]

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat)


class NoValueBefore(Exception):
    """An attribute of a module is None before a loop, and a tensor that the next iteration reads after one."""


class Attributes:
    """The attributes, before a statement, of the objects that the statement may change.

    Args:
        state: The variables of the statement.

    Attributes:
        were_none: The attributes of modules that were None before and are tensors after: owner, name and tensor.
    """

    def __init__(self, state: State) -> None:
        self._before = [(owner, _own(owner)) for owner in objects_in(state.held())]
        self.were_none: list[tuple[nn.Module, str, Tensor]] = []

    def added_to(self, state: State, read: Collection[int] | None) -> State | None:
        """The variables and those attributes that the statement has changed, with their values of before.

        None if there is none. An attribute is a variable if its type and its shape are the same as before. One of
        another size is a variable of a branch, such as a table for more positions, and of a loop that has read it:
        attention weights that are kept for the user are not what a later iteration computes with. One of an object that
        is no module is a variable too if it was None.

        Args:
            state: The variables.
            read: The ``id`` of each tensor from outside that a loop has read; None for a branch.
        """
        self.were_none = [
            (owner, name, value)
            for owner, name, before, value in self._differing()
            if before is None and isinstance(value, Tensor) and isinstance(owner, nn.Module)
        ]
        with untracked():  # Sizes inside the statement are compared with those outside.
            changed = [one[:3] for one in self._differing() if _is_variable(*one, read)]
        self.restore()
        if not changed:
            return None
        for owner, name, before in changed:
            setattr(owner, name, before)

        def get() -> list[Any]:
            return [*state.get(), *(getattr(owner, name, UNDEFINED) for owner, name, _ in changed)]

        def assign(values: Sequence[Any]) -> None:
            own = len(values) - len(changed)
            state.set(values[:own])
            for (owner, name, _), value in zip(changed, values[own:], strict=True):
                setattr(owner, name, value)

        names = [*state.names, *(f"{type(owner).__name__}.{name}" for owner, name, _ in changed)]
        return dataclasses.replace(state, names=names, get=get, set=assign)

    def restore(self) -> None:
        """Give the attributes that are tensors now the values that they had."""
        for owner, name, before, value in list(self._differing()):
            if isinstance(value, Tensor) and before is UNDEFINED:
                delattr(owner, name)
            elif isinstance(value, Tensor):
                setattr(owner, name, before)

    def _differing(self) -> Iterator[tuple[Any, str, Any, Any]]:
        """The attributes that differ: their owner and name, and their values before and now."""
        for owner, before in self._before:
            for name, value in _own(owner).items():
                if value is not before.get(name, UNDEFINED):
                    yield owner, name, before.get(name, UNDEFINED), value


def _is_variable(owner: Any, name: str, before: Any, value: Any, read: Collection[int] | None) -> bool:
    if before is None:
        return isinstance(value, Tensor) and not isinstance(owner, nn.Module)
    if isinstance(before, Tensor) and isinstance(value, Tensor) and (read is None or id(before) in read):
        return before.dtype == value.dtype and before.dim() == value.dim()
    return _are_alike(before, value)


def _own(owner: Any) -> dict[str, Any]:
    buffers = owner.named_buffers(recurse=False) if isinstance(owner, nn.Module) else ()
    return {**attributes_of(owner), **dict(buffers)}


def _are_alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and same_shape(a.shape, b.shape)
    return isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and (a is True or a is False) == isinstance(b, bool)
