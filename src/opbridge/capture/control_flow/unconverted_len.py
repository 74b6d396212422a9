"""``len`` of a list whose length is known only at run time, in code that is not converted."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from opbridge.capture.control_flow.rows import has_rows, length
from opbridge.torch_graph import python_sizes

__all__ = ["counting_rows"]

_count = builtins.len


def _length(value: Any, /) -> Any:
    is_list = type(value) in (list, tuple) and not _is_internal(sys._getframe(1))
    return length(value) if is_list and has_rows(value) else _count(value)


def _is_internal(frame: FrameType | None) -> bool:
    """Whether torch, opbridge, or the module that reads lines of source for torch calls a function that is replaced."""
    while frame is not None and frame.f_globals.get("__name__") == python_sizes.__name__:
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    return name.partition(".")[0] in ("torch", "opbridge", "linecache")


@contextlib.contextmanager
def counting_rows() -> Iterator[None]:
    """Let ``len`` of a list with rows return the number of its elements inside the block, in the model's code."""
    builtins.len, before = _length, builtins.len
    try:
        yield
    finally:
        builtins.len = before
