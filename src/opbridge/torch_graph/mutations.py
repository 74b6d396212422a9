"""What operators that write into tensors need while they are traced.

The internal of torch that this needs: ``torch._debug_has_internal_overlap``, which its functions for fake tensors call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["noting_mutations", "without_overlap_checks"]


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


@contextlib.contextmanager
def without_overlap_checks() -> Iterator[None]:
    """Don't ask whether the elements of a tensor with dynamic sizes share memory, before it is written into.

    The question compares its sizes with 1 and the number of its elements with 0, which would exclude such sizes:
    ``shifted[:, 1:] = tokens[:, :-1]`` would need three tokens. In eager PyTorch, a write into such a tensor fails.
    """
    original = torch._debug_has_internal_overlap

    def has_overlap(tensor: torch.Tensor) -> int:
        return original(tensor) if all(type(size) is int for size in tensor.shape) else 0

    torch._debug_has_internal_overlap = has_overlap  # type: ignore[assignment]
    try:
        yield
    finally:
        torch._debug_has_internal_overlap = original
