"""Which inputs an operator writes into, seen by torch's ``TorchDispatchMode``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["noting_mutations"]


@contextlib.contextmanager
def noting_mutations(inputs: Sequence[Any]) -> Iterator[set[int]]:
    """Record which inputs an operator writes into, directly or through views.

    Yields:
        A collection to which the positions of these inputs are added.
    """
    storages = {
        value.untyped_storage()._cdata: position
        for position, value in enumerate(inputs)
        if isinstance(value, torch.Tensor)
    }
    changed: set[int] = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.is_write and isinstance(value, torch.Tensor):
                    position = storages.get(value.untyped_storage()._cdata)
                    changed.update(() if position is None else (position,))
            return func(*args, **(kwargs or {}))

    with Watching():
        yield changed
