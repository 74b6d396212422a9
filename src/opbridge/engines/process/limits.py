"""How long an engine in a child process may work, and how much memory it may take."""

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
"""What one step of an engine may take: loading a model, or one run."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a child process may take.

    Attributes:
        seconds: Of one step: loading a model, or one run. None sets no limit.
        memory: The bytes of memory of its own that it may hold (on Linux: of private writable memory, so that weights
            mapped from a file do not count). None sets no limit; the kernel then ends it before this process.
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
        """These limits with no more time than that."""
        return dataclasses.replace(self, seconds=seconds if self.seconds is None else min(self.seconds, seconds))


_CURRENT: contextvars.ContextVar[Limits] = contextvars.ContextVar("limits", default=Limits())  # noqa: B039 - frozen


def current_limits() -> Limits:
    """The limits in force: those of the innermost :func:`limited`, else the default ones."""
    return _CURRENT.get()


@contextlib.contextmanager
def limited(*, time_limit: float | None = None, memory_limit: int | None = None) -> Iterator[None]:
    """Set the limits of the engines that are started inside; None leaves one as it was.

    Args:
        time_limit: Seconds of one step; infinity for no limit.
        memory_limit: Bytes.

    Raises:
        InputError: A limit leaves nothing.
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
    """The bytes that ``"4GiB"``, ``"500 MB"`` or ``"1000000"`` stand for; a single letter is binary: ``"4G"``.

    Raises:
        ValueError: The text is no size.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size; write 4GiB, 500MB, or a number of bytes")
    number, prefix, binary = found.groups()
    if not prefix:
        return int(float(number))
    decimal = not binary and text.rstrip()[-1] in "bB"
    return int(float(number) * (1000 if decimal else 1024) ** ("kmgt".index(prefix.lower()) + 1))
