"""Suppresses the messages of torch and onnxscript, which opbridge reports as findings.

Only the thread that asks for it is silenced. What Python shares between threads (``sys.stderr``, the warning filters,
the logging handlers) gets an addition that asks which thread it is, until no thread is silenced any more.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

__all__ = ["silenced"]

_LOGGERS = ("torch.onnx", "torch.export", "torch._export", "torch.fx", "onnxscript", "onnx_ir")


@contextlib.contextmanager
def silenced() -> Iterator[io.StringIO]:
    """Suppress warnings, log messages below ERROR, and output to ``sys.stderr``, of this thread.

    Yields:
        The output to ``sys.stderr``: torch prints thousands of lines of graphs before it raises an error.
    """
    printed = io.StringIO()
    stack = _own_outputs()
    _shared.enter()
    stack.append(printed)
    try:
        yield printed
    finally:
        stack.pop()
        _shared.leave()


_thread = threading.local()


def _own_outputs() -> list[io.StringIO]:
    """The outputs of the silenced sections that this thread is in, the innermost last."""
    if not hasattr(_thread, "outputs"):
        _thread.outputs = []
    outputs: list[io.StringIO] = _thread.outputs
    return outputs


class _Output:
    """``sys.stderr`` while a thread is silenced: what that thread prints is kept, what others print is printed."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen

    def __getattr__(self, name: str) -> Any:
        outputs = _own_outputs()
        return getattr(outputs[-1] if outputs else self._screen, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._screen)


class _AnyMessage:
    """A pattern of a warning filter that fits every message of a silenced thread, and none of another."""

    def match(self, text: str) -> bool:
        return bool(_own_outputs())


class _NoMessages(logging.Filter):
    """A filter of a handler that drops the messages of the loggers from silenced threads."""

    def filter(self, record: logging.LogRecord) -> bool:
        concerned = any(record.name == name or record.name.startswith(f"{name}.") for name in _LOGGERS)
        return not (concerned and record.levelno < logging.ERROR and _own_outputs())


class _Shared:
    """The additions to what all threads share, made by the first silenced thread and removed by the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._screen: TextIO | None = None
        self._output: _Output | None = None
        self._filter: Any = ("ignore", _AnyMessage(), Warning, None, 0)
        self._no_messages = _NoMessages()

    def enter(self) -> None:
        with self._lock:
            self._count += 1
            if not isinstance(sys.stderr, _Output) and sys.stderr is not None:
                self._screen, self._output = sys.stderr, _Output(sys.stderr)
                sys.stderr = self._output  # type: ignore[assignment]
            # Whoever added a filter since then would be heard before this one.
            self._remove_filter()
            warnings.filters.insert(0, self._filter)  # type: ignore[attr-defined]
            for handler in _handlers():
                handler.addFilter(self._no_messages)

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count:
                return
            if self._output is not None and sys.stderr is self._output:
                sys.stderr = self._screen  # type: ignore[assignment]
            self._screen = self._output = None
            self._remove_filter()
            for handler in _handlers():
                handler.removeFilter(self._no_messages)

    def _remove_filter(self) -> None:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


_shared = _Shared()


def _handlers() -> set[logging.Handler]:
    """The handlers that the loggers and those below them write to."""
    found = set(logging.getLogger().handlers)
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if _is_related(name) and isinstance(logger, logging.Logger):
            found.update(logger.handlers)
    return found


@functools.cache
def _is_related(name: str) -> bool:
    return any(name == own or name.startswith(f"{own}.") or own.startswith(f"{name}.") for own in _LOGGERS)
