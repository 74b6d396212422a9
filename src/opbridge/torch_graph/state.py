"""Preserves a model's state, except its parameters, during a run or a capture.

A forward pass may cache a table, create a buffer on first use, or count its calls. A later capture would then result in
a graph with other constants than the exported graph, and a capture that fills a cache would leave tensors without data
in it.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch

__all__ = ["keeping_state"]

_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, deque)


@contextlib.contextmanager
def keeping_state(module: torch.nn.Module, *, contents_of_buffers: bool = True) -> Iterator[None]:
    """Restore on exit the attributes, containers, and contents of tensors that the block changes in a module.

    This covers modules and Python's built-in containers in their attributes. Parameters keep their place and element
    type; their contents are not copied, because inference does not change them and copies would need memory.

    Args:
        module: The module.
        contents_of_buffers: Whether the block may change buffers. A capture uses fake tensors in their place.
    """
    held = _Held(module, contents_of_buffers)
    try:
        yield
    finally:
        held.put_back()


class _Held:
    """A snapshot of a module: references to its contents, and copies of contents that may change."""

    def __init__(self, module: torch.nn.Module, contents_of_buffers: bool) -> None:
        self._containers: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._parameters = [(p, p.detach()) for p in module.parameters() if not torch.nn.parameter.is_lazy(p)]
        self._untouched = set() if contents_of_buffers else {id(buffer) for buffer in module.buffers()}
        pending: list[Any] = [module, *module.buffers()]
        while pending:
            pending += self._hold(pending.pop())

    def _hold(self, value: Any) -> Iterable[Any]:
        """Record one value, and return the values inside it."""
        if isinstance(value, torch.Tensor):
            is_lazy = torch.nn.parameter.is_lazy(value)
            untouched = is_lazy or isinstance(value, torch.nn.Parameter) or id(value) in self._untouched
            if not untouched and id(value) not in self._tensors:
                self._tensors[id(value)] = value, value.detach().clone()
            return ()
        if isinstance(value, torch.nn.Module):
            value = vars(value)
        if type(value) is tuple:
            return value
        if id(value) in self._containers or type(value) not in (*_MAPPINGS, *_SEQUENCES, set):
            return ()
        self._containers[id(value)] = value, copy.copy(value)
        return value.values() if isinstance(value, dict) else value

    def put_back(self) -> None:
        """Undo all changes since the snapshot."""
        for container, before in self._containers.values():
            if not _same(container, before):
                container.clear()
                (container.extend if type(container) in _SEQUENCES else container.update)(before)
        for parameter, contents in self._parameters:
            # A module that converts itself (``self.to(...)``) replaces the data of its parameters.
            if parameter.dtype != contents.dtype:
                parameter.data = contents
        with torch.no_grad():
            for tensor, before in self._tensors.values():
                # An unnecessary write would invalidate tensors saved by autograd.
                if tensor.is_meta or tensor.layout is not torch.strided or not torch.equal(tensor, before):
                    tensor.copy_(before)


def _same(container: Any, before: Any) -> bool:
    """Whether a container still has the same objects in the same order."""
    if len(container) != len(before):
        return False
    if isinstance(container, set):
        return bool(container == before)
    if isinstance(container, dict) and not _same(list(container), list(before)):
        return False
    ours, others = (item.values() if isinstance(item, dict) else item for item in (container, before))
    return all(one is other for one, other in zip(ours, others, strict=True))
