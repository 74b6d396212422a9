"""Runs of a model, during a capture, with the functions that the capture replaces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["original_functions", "runs_originals"]

# Dynamo of torch 2.13 traces the functions that ask for it, and does not know context variables.
_originals = False


@contextlib.contextmanager
def original_functions() -> Iterator[None]:
    """Let functions and torch functions that rewrites replace run as they are inside the block."""
    global _originals
    before, _originals = _originals, True
    try:
        yield
    finally:
        _originals = before


def runs_originals() -> bool:
    """Whether this is inside :func:`original_functions`."""
    return _originals
