"""Texts with integers that are known only at run time: the key in ``experts[f"expert_{i}"]``."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch
from torch import Tensor

from opbridge.capture.control_flow.conditions import both, condition, is_dynamic

__all__ = ["Text", "text"]


class Text(str):
    """What an f-string makes during the capture, with torch's symbols for the integers.

    Attributes:
        parts: Constant texts and dynamic integers.
    """

    parts: tuple[Any, ...]

    def equals(self, other: str) -> Any:
        """Whether this is equal to a constant text, without deciding it; not if two integers follow each other."""
        pattern = "".join(re.escape(part) if isinstance(part, str) else "(-?[0-9]+)" for part in self.parts)
        found = None if ")(" in pattern else re.fullmatch(pattern, other)
        numbers = found.groups() if found else ()
        if not found or any(str(int(number)) != number for number in numbers):
            return self == other
        dynamic = (part for part in self.parts if not isinstance(part, str))
        tests = (condition(part == int(number)) for part, number in zip(dynamic, numbers, strict=True))
        return functools.reduce(both, tests)


def text(*parts: Any) -> str:
    """An f-string of these values."""
    values = [_number(part) for part in parts]
    result = Text("".join(map(format, values)))
    result.parts = tuple(one if isinstance(one, torch.SymInt) else format(one) for one in values)
    return result if any(isinstance(one, torch.SymInt) for one in values) else str(result)


def _number(value: Any) -> Any:
    """A dynamic integer as a ``SymInt``; any other value unchanged."""
    if not is_dynamic(value):
        return format(value)
    is_integer = isinstance(value, Tensor) and not value.dim() and value.dtype in (torch.int64, torch.int32)
    return value.item() if is_integer else value
