"""Replacements of Python's ``len``, ``min`` and ``max`` during a capture, which keep dynamic sizes dynamic.

``len(x)`` must return an integer, and ``min(k, n)`` must compare its arguments. Both therefore specialize a dynamic
dimension to the size in the example, or fail for a size that depends on data. They have equivalents that a graph can
contain (``x.shape[0]``, ``torch.sym_min``). Models of many libraries call them, so they are replaced by name.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["dynamic_builtins"]


@contextlib.contextmanager
def dynamic_builtins() -> Iterator[None]:
    """Make ``len``, ``min`` and ``max`` of dynamic sizes return dynamic sizes inside the block.

    Calls from torch's own code, and calls without a dynamic size, are not affected.
    """
    originals = {"len": len, "min": min, "max": max}
    replaced = {
        "len": _length(len),
        "min": _extreme(min, torch.sym_min),
        "max": _extreme(max, torch.sym_max),
    }
    vars(builtins).update(replaced)
    try:
        yield
    finally:
        vars(builtins).update(originals)


def _called_by_torch() -> bool:
    name = sys._getframe(2).f_globals.get("__name__") or ""
    return name == "torch" or name.startswith("torch.")


def _length(original: Callable[..., int]) -> Callable[..., Any]:
    @functools.wraps(original)
    def length(value: Any, /) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and isinstance(value.shape[0], torch.SymInt):
            return original(value) if _called_by_torch() else value.shape[0]
        return original(value)

    return length


def _extreme(original: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def extreme(*values: Any, **options: Any) -> Any:
        if options or not _is_dynamic(values) or _called_by_torch():
            return original(*values, **options)
        numbers = values[0] if type(values[0]) in (list, tuple, torch.Size) else values
        return functools.reduce(symbolic, numbers)

    return extreme


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


def _is_dynamic(values: tuple[Any, ...]) -> bool:
    """Whether these arguments of ``min`` are numbers, one of them a dynamic size."""
    inner = values[0] if len(values) == 1 and type(values[0]) in (list, tuple, torch.Size) else values
    return any(type(x) in (torch.SymInt, torch.SymFloat) for x in inner) and all(type(x) in _NUMBERS for x in inner)
