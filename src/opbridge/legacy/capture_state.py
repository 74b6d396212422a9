"""The capture in progress of each thread, and the Functions with a ``symbolic`` that it calls."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from opbridge.catalog.declare.spec import OpSpec
from opbridge.legacy.torchscript import answer_as_tracer
from opbridge.torch_graph import internals as torch_internals

if TYPE_CHECKING:
    from opbridge.legacy.function_calls import FunctionCall

__all__ = [
    "Seen",
    "answering_as_tracer",
    "ignored_in",
    "is_capturing",
    "latest_function",
    "paused",
    "seen_now",
    "shaping",
    "using",
]

_ignored: weakref.WeakKeyDictionary[torch.export.ExportedProgram, dict[Any, str]] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class Seen:
    """The Functions with a ``symbolic`` that were called during a capture.

    Attributes:
        on: Whether the bridge is on.
        latest: The Function that was called last.
        calls: If the bridge is on, the calls by target, in order of first use.
        ignored: If the bridge is off, the Functions that were inlined, with the user's line of the first call.
    """

    on: bool
    latest: Any = None
    calls: dict[str, FunctionCall] = dataclasses.field(default_factory=dict)
    ignored: dict[Any, str] = dataclasses.field(default_factory=dict)

    def finish(self, program: torch.export.ExportedProgram) -> tuple[OpSpec, ...]:
        """Record the Functions that were inlined in ``program``; return the declarations of the new operators."""
        _ignored[program] = self.ignored
        return tuple(call.spec() for call in self.calls.values())


class _Thread(threading.local):
    seen: Seen | None = None
    shaping: bool = False


_thread = _Thread()
_lock = threading.Lock()
_answering = 0
_restore_tracing: Callable[[], None] = lambda: None  # noqa: E731


def seen_now() -> Seen | None:
    """Return the record of the current capture of this thread; None outside a capture and while it is paused."""
    return _thread.seen


@contextlib.contextmanager
def using(seen: Seen | None) -> Iterator[None]:
    """Use ``seen`` as the record of this thread inside the block."""
    outer = _thread.seen
    _thread.seen = seen
    try:
        yield
    finally:
        _thread.seen = outer


def paused() -> contextlib.AbstractContextManager[None]:
    """Stop intercepting inside the ``forward`` of an operator, so that Functions that it calls are inlined."""
    return using(None)


def is_capturing() -> bool:
    """Return whether this thread captures a model with the bridge on, outside any ``forward``."""
    return _thread.seen is not None and _thread.seen.on


@contextlib.contextmanager
def shaping() -> Iterator[None]:
    """Run a ``forward`` on fake tensors inside the block, where it finds that it is traced and exported."""
    before, _thread.shaping = _thread.shaping, True
    try:
        with answering_as_tracer(), torch_internals.exporting_to_onnx():
            yield
    finally:
        _thread.shaping = before


@contextlib.contextmanager
def answering_as_tracer() -> Iterator[None]:
    """Let the user's code find that TorchScript's tracer runs, while it is captured with the bridge on."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _answering, _restore_tracing
    with _lock:
        before, _answering = _answering, _answering + change
        if not before:
            _restore_tracing = answer_as_tracer(_is_traced)
        elif not _answering:
            _restore_tracing()


def _is_traced(caller: str) -> bool:
    """Return whether a module is the user's and is captured with the bridge on.

    torch's own code is captured by torch.export, and must not take the paths for TorchScript's tracer. torchvision has
    scripted functions on these paths.
    """
    return (_thread.shaping or is_capturing()) and caller.partition(".")[0] not in ("torch", "torchvision")


def latest_function() -> Any:
    """Return the Function with a ``symbolic`` that the current capture called last; None if there is none."""
    return _thread.seen.latest if _thread.seen is not None else None


def ignored_in(program: torch.export.ExportedProgram) -> Mapping[Any, str]:
    """Return the Functions whose ``symbolic`` was ignored in a capture, with the line of the first call."""
    return _ignored.get(program, {})
