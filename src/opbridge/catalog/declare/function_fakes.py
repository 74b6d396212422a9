"""The shape functions that users give for their autograd.Functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["function_fake", "register_function_fake"]

_fakes: weakref.WeakKeyDictionary[type, Callable[..., Any]] = weakref.WeakKeyDictionary()


def register_function_fake(function: type, fake: Callable[..., Any]) -> None:
    """Give an autograd.Function a shape function: it takes the arguments of ``apply``."""
    _fakes[function] = fake


def function_fake(function: type) -> Callable[..., Any] | None:
    """The shape function given for this autograd.Function or for a base class of it; None if there is none."""
    return next((_fakes[base] for base in function.__mro__ if base in _fakes), None)
