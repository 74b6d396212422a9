"""Ends a child process when its parent has ended, even during a long computation."""

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
    """Watch the parent process from a thread, and end this process when the parent has ended.

    The operating system could send a signal instead (Linux: PR_SET_PDEATHSIG), but it does so when the *thread* that
    started the child ends.
    """
    if sys.platform != "win32":
        threading.Thread(target=_watch, args=(os.getppid(),), daemon=True, name="lifeline").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    os.kill(os.getpid(), signal.SIGKILL)


def end_within(seconds: float | None) -> None:
    """Make the operating system end this process shortly after the time limit ``seconds`` of a step; None cancels this.

    This is for engines that hold Python's global lock while they compute, so that the watching thread does not run. If
    the parent still runs, it ends this process earlier.
    """
    if sys.platform != "win32":
        with contextlib.suppress(ValueError):  # Only the main thread can set a signal handler.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.0 if seconds is None else seconds + _GRACE)
