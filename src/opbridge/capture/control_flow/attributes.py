"""Attributes of modules that a branch or a loop changes in a method that it calls, such as the state of a decoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opbridge.capture.control_flow.state import State
from opbridge.capture.control_flow.values import UNDEFINED, same_shape

__all__ = ["Attributes"]

_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat)


class Attributes:
    """The attributes, before a statement, of the modules whose methods the statement calls, and of their parts.

    Args:
        state: The variables of the statement.
    """

    def __init__(self, state: State) -> None:
        called = [value for value in state.held() if isinstance(value, nn.Module)]
        owners = {id(part): part for module in called for part in module.modules()}
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
            for name, value in list(vars(owner).items()):
                if isinstance(value, Tensor) and before.get(name) is None:
                    if name in before:
                        setattr(owner, name, None)
                    else:
                        delattr(owner, name)

    def _changed(self) -> Iterator[tuple[nn.Module, str, Any]]:
        """The attributes that differ, with their values of before."""
        for owner, before in self._before:
            for name, value in _own(owner).items():
                if value is not before.get(name) and _are_alike(before.get(name), value):
                    yield owner, name, before[name]


def _own(owner: nn.Module) -> dict[str, Any]:
    return {**vars(owner), **dict(owner.named_buffers(recurse=False))}


def _are_alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and same_shape(a.shape, b.shape)
    return isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and (a is True or a is False) == isinstance(b, bool)
