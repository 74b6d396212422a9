"""The inference engines: one folder each, found by looking, so that a new engine edits no list."""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil

from opbridge.engines.base import Engine
from opbridge.errors import InputError

__all__ = ["get", "names"]


def names() -> list[str]:
    """The engines that opbridge knows, installed here or not, sorted. Imports none of them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


@functools.cache
def get(name: str) -> Engine:
    """The engine of this name; the same object every time, since it remembers what it was asked.

    Raises:
        InputError: There is no engine of this name. (Whether it is installed shows when it is used.)
    """
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"There is no engine {name!r}. opbridge knows: {', '.join(known)}.",
            fix=f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(known)}.",
        )
    engine: Engine = importlib.import_module(f"{__name__}.{name}").ENGINE()
    return engine
