"""Runs of a model, during a capture, with the functions that the capture replaces."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

__all__ = ["original_functions", "runs_originals"]

_originals = contextvars.ContextVar("_originals", default=False)


@contextlib.contextmanager
def original_functions() -> Iterator[None]:
    """Let functions and torch functions that rewrites replace run as they are inside the block."""
    token = _originals.set(True)
    try:
        yield
    finally:
        _originals.reset(token)


def runs_originals() -> bool:
    """Whether this is inside :func:`original_functions`."""
    return _originals.get()
