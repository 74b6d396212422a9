"""Attributes of modules and other objects that a branch or a loop changes in a method, such as a decoder's state."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opbridge.capture.control_flow.state import State
from opbridge.capture.control_flow.trees import attributes_of, is_object
from opbridge.capture.control_flow.values import UNDEFINED, same_shape

__all__ = ["Attributes"]

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat)


class Attributes:
    """The attributes, before a statement, of the objects whose methods the statement calls, and of modules' parts.

    Args:
        state: The variables of the statement.
    """

    def __init__(self, state: State) -> None:
        called = [value for value in state.held() if isinstance(value, nn.Module) or is_object(value)]
        parts = (list(one.modules()) if isinstance(one, nn.Module) else [one] for one in called)
        owners = {id(part): part for part in itertools.chain(*parts)}
        self._before = [(owner, _own(owner)) for owner in owners.values()]

    def added_to(self, state: State) -> State | None:
        """The variables and those attributes that the statement has changed, with their values of before.

        None if there is none. An attribute is a variable only if its type and its shape are the same as before; others,
        such as attention weights that are kept for the user, are not what a later iteration computes with. One that had
        no value has none again.
        """
        self._remove_new()
        changed = list(self._changed())
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

    def _remove_new(self) -> None:
        for owner, before in self._before:
            for name, value in attributes_of(owner).items():
                if isinstance(value, Tensor) and before.get(name) is None:
                    if name in before:
                        setattr(owner, name, None)
                    else:
                        delattr(owner, name)

    def _changed(self) -> Iterator[tuple[Any, str, Any]]:
        """The attributes that differ, with their values of before."""
        for owner, before in self._before:
            for name, value in _own(owner).items():
                if value is not before.get(name) and _are_alike(before.get(name), value):
                    yield owner, name, before[name]


def _own(owner: Any) -> dict[str, Any]:
    buffers = owner.named_buffers(recurse=False) if isinstance(owner, nn.Module) else ()
    return {**attributes_of(owner), **dict(buffers)}


def _are_alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and same_shape(a.shape, b.shape)
    return isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and (a is True or a is False) == isinstance(b, bool)
