"""Ends a child process whose parent is gone, also when it is in the middle of a long computation."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

__all__ = ["end_with_parent", "end_within"]

_PERIOD = 1.0
_GRACE = 60.0


def end_with_parent() -> None:
    """Watch the parent from a thread of its own, and end this process when it has gone.

    The kernel could send a signal instead (Linux: PR_SET_PDEATHSIG), but does so when the *thread* that started the
    child ends.
    """
    if sys.platform != "win32":
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True, name="lifeline").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    os.kill(os.getpid(), signal.SIGKILL)


def end_within(seconds: float | None) -> None:
    """Have the kernel end this process some time after a step of ``seconds`` should be over; None calls that off.

    For engines that keep the interpreter's lock while they compute, so that the thread that watches never comes to its
    turn. The parent, if there still is one, is faster.
    """
    if sys.platform != "win32":
        with contextlib.suppress(ValueError):  # Signals of a step in another thread than the main one are not ours.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.0 if seconds is None else seconds + _GRACE)
