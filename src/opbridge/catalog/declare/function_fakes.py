"""The shape functions that users register for their autograd.Functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["function_fake", "register_function_fake"]

_fakes: weakref.WeakKeyDictionary[type, Callable[..., Any]] = weakref.WeakKeyDictionary()


def register_function_fake(function: type, fake: Callable[..., Any]) -> None:
    """Register a shape function, which takes the arguments of ``apply``, for an autograd.Function."""
    _fakes[function] = fake


def function_fake(function: type) -> Callable[..., Any] | None:
    """The shape function registered for this autograd.Function or for one of its base classes, or None."""
    return next((_fakes[base] for base in function.__mro__ if base in _fakes), None)
