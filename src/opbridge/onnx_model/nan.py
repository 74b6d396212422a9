"""Whether what is made or changed now must return NaN where PyTorch does: a mapping of a call, a form of a node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["keeping_nan", "keeps_nan"]

_kept: ContextVar[bool] = ContextVar("_kept", default=True)


def keeps_nan() -> bool:
    """Whether the mapping of the current call, or the changed model, must return what PyTorch returns for NaN."""
    return _kept.get()


@contextlib.contextmanager
def keeping_nan(kept: bool) -> Iterator[None]:
    """Set the answer of :func:`keeps_nan` inside the block."""
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
