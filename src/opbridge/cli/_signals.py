"""What a signal does to a running subcommand: it unwinds the stack, so that temporary files are deleted."""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import signal
import threading
import types
from collections.abc import Iterator

from opbridge import atomic

__all__ = ["Signals", "Terminated", "handled"]

_LATER = 0.05
"""After how many seconds a signal is handled again that came when Python must not raise."""

_INTERRUPTIBLE = ("sync", "sync_tree")
"""Functions that neither make nor delete a temporary file, and may take long."""


class Terminated(SystemExit):
    """Raised when a signal asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@dataclasses.dataclass
class Signals:
    """Whether the user has interrupted the process."""

    interrupted: bool = False


@contextlib.contextmanager
def handled(signals: Signals) -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise Terminated and SIGINT KeyboardInterrupt; ``signals`` notes SIGINT."""

    def stop(number: int, frame: types.FrameType | None) -> None:
        if not _put_off(number, frame):
            raise Terminated(number)

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        if not _put_off(number, frame):
            signals.interrupted = True
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Ignored signals (nohup) stay ignored.
    handlers = {number: stop for number in numbers if signal.getsignal(number) is not signal.SIG_IGN}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = interrupt
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _put_off(number: int, frame: types.FrameType | None) -> bool:
    """Send a signal again later if Python must not raise now.

    torch's C++ code aborts the process if Python raises while torch is imported. A temporary file that is being made or
    deleted would stay.
    """
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        is_import = frame.f_code.co_name == "<module>" and name.partition(".")[0] == "torch"
        if is_import or (name == atomic.__name__ and frame.f_code.co_name not in _INTERRUPTIBLE):
            timer = threading.Timer(_LATER, _send, (number,))
            timer.daemon = True
            timer.start()
            return True
        frame = frame.f_back
    return False


def _send(number: int) -> None:
    """Send a signal to the main thread, which wakes it if it waits for the operating system."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(number)  # type: ignore[arg-type]
