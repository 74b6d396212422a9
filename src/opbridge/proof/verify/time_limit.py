"""A time limit for Python code, such as a loop of a model that never ends for some inputs."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["TooSlow", "limit_for", "within"]

_SHORTEST, _SLOWDOWN = 10.0, 50.0

_T = TypeVar("_T")

_AGAIN = 1.0
"""The seconds after which the exception is raised again, in case the code caught it."""


class TooSlow(Exception):
    """The code did not end in time."""


def within(seconds: float | None, function: Callable[[], _T]) -> _T:
    """Call a function, and raise :class:`TooSlow` in it if it takes longer.

    The exception is raised between two instructions of Python: one call of an operator is not interrupted.

    Args:
        seconds: The limit; None for no limit.
        function: The function.
    """
    if seconds is None:
        return function()
    thread, lock, end = threading.get_ident(), threading.Lock(), threading.Event()
    is_done = False

    def watch() -> None:
        delay = seconds
        while not end.wait(delay):
            with lock:
                if is_done:
                    return
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TooSlow))
            delay = _AGAIN

    try:
        try:
            threading.Thread(target=watch, daemon=True).start()
            return function()
        finally:
            # An assignment can't be interrupted, as a call can, such as that of the end of a context manager.
            is_done = True
            with lock:  # Nothing is raised after this; what was raised before arrives now.
                time.sleep(0)
            end.set()
    except TooSlow:
        raise TooSlow(f"it did not end within {seconds:.3g} s") from None
    finally:
        end.set()


def limit_for(run: Callable[[], object]) -> float:
    """The seconds to allow for inputs like those of ``run``: 50 times as many as it takes, and at least ten."""
    seconds = []
    with contextlib.suppress(Exception):
        for _ in range(2):  # The first run may be slower than others.
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return max(_SHORTEST, _SLOWDOWN * min(seconds, default=0.0))
