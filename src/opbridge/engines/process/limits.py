"""Limits on the time and memory of an engine in a child process."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import re
import sys
from collections.abc import Iterator

from opbridge.errors import InputError

__all__ = ["DEFAULT_SECONDS", "Limits", "current_limits", "limited", "parse_size"]

DEFAULT_SECONDS = 600.0
"""The default time limit of one step of an engine: loading a model, or one run."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a child process.

    Attributes:
        seconds: The time limit of one step: loading a model, or one run. None sets no limit.
        memory: The memory limit in bytes (on Linux for private writable memory, so that weights mapped from a file do
            not count). None sets no limit; if memory runs out, the operating system ends the child before this process.
    """

    seconds: float | None = DEFAULT_SECONDS
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(
                f"A time limit of {self.seconds:g} seconds leaves no time.", fix="pass a number above 0, such as 60."
            )
        if self.memory is not None and self.memory <= 0:
            raise InputError(
                f"A memory limit of {self.memory} bytes leaves no memory.", fix="pass a size such as 4GiB."
            )
        if self.memory is not None and sys.platform == "win32":
            raise InputError("A memory limit can't be set on Windows.", fix="leave the memory limit out.")

    def at_most(self, seconds: float) -> Limits:
        """These limits with the smaller of the two time limits."""
        return dataclasses.replace(self, seconds=seconds if self.seconds is None else min(self.seconds, seconds))


_CURRENT: contextvars.ContextVar[Limits] = contextvars.ContextVar("limits", default=Limits())  # noqa: B039 - frozen


def current_limits() -> Limits:
    """The current limits: those of the innermost :func:`limited`, or the defaults."""
    return _CURRENT.get()


@contextlib.contextmanager
def limited(*, time_limit: float | None = None, memory_limit: int | None = None) -> Iterator[None]:
    """Set the limits of engines that are started inside the block; None keeps the current limit.

    Args:
        time_limit: The time limit of one step in seconds; infinity for no limit.
        memory_limit: The memory limit in bytes.

    Raises:
        InputError: A limit is not positive, or can't be set on this platform.
    """
    before = current_limits()
    seconds = before.seconds if time_limit is None else time_limit
    memory = before.memory if memory_limit is None else memory_limit
    token = _CURRENT.set(Limits(None if seconds == float("inf") else seconds, memory))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def parse_size(text: str) -> int:
    """The number of bytes in a size like ``"4GiB"``, ``"500 MB"``, ``"1000000"`` or ``"4G"``, which is binary.

    Raises:
        ValueError: The text is not a size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 4GiB, 500MB, or a number of bytes")
    number, prefix, binary = found.groups()
    if not prefix:
        return int(float(number))
    decimal = not binary and text.rstrip()[-1] in "bB"
    return int(float(number) * (1000 if decimal else 1024) ** ("kmgt".index(prefix.lower()) + 1))
