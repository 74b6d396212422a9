"""Shows progress on stderr for commands that take longer than a second."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, TextIO

from opbridge.proof.progress import Count

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

__all__ = ["Progress"]

_PATIENCE = 1.0
_BETWEEN_LINES = 10.0


class Progress:
    """A progress callback. On a terminal it shows a spinner, or a bar if the amount of work is known.

    Elsewhere it prints one line per message; counting messages are printed at most every ten seconds.

    Args:
        stream: The stream to write to.
        quiet: Whether to print nothing.
    """

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._message = ""
        self._started = time.monotonic()
        self._pace = _Pace()
        self._last_line = float("-inf")
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(_PATIENCE, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __call__(self, message: str) -> None:
        self._message = message
        self._pace.note(message)
        if not self._quiet and time.monotonic() - self._started > _PATIENCE:
            self._show()

    def stop(self) -> None:
        """Remove the spinner and stay silent from now on."""
        self._quiet = True
        self._timer.cancel()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def _show(self) -> None:
        with self._lock:
            if self._quiet or not self._message:
                return
            if not self._stream.isatty():
                self._print_line()
            elif self._live is None:
                self._live = _live(self._stream, _rendered(self._message, self._pace.left))
                self._live.start()
            else:
                self._live.update(_rendered(self._message, self._pace.left))

    def _print_line(self) -> None:
        now = time.monotonic()
        if isinstance(self._message, Count):
            if now - self._last_line < _BETWEEN_LINES:
                return
            self._last_line = now
        left = self._pace.left
        with contextlib.suppress(OSError):  # Nobody needs to see the progress.
            self._stream.write(f"{self._message}{f', {left}' if left else ''} ...\n")
            self._stream.flush()


class _Pace:
    """Estimates the remaining time from the progress counts."""

    def __init__(self) -> None:
        self._what = ""
        self._first = 0
        self._begun = 0.0
        self.left = ""

    def note(self, message: str) -> None:
        """Record the next message."""
        self.left = ""
        if not isinstance(message, Count):
            self._what = ""
            return
        now = time.monotonic()
        if message.what != self._what:
            self._what, self._first, self._begun = message.what, message.done, now
            return
        done, seconds = message.done - self._first, now - self._begun
        if done > 0 and seconds > _PATIENCE:
            self.left = f"about {_duration(seconds / done * (message.total - message.done))} left"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _rendered(message: str, left: str) -> RenderableType:
    from rich.console import Group
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    if not isinstance(message, Count):
        return Spinner("dots", text=Text(message))
    from rich.progress_bar import ProgressBar

    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(message.total, 1), completed=message.done, width=30)
    numbers = f"{message.done} of {message.total}{f', {left}' if left else ''}"
    row.add_row(Spinner("dots", text=Text(message.what)), bar, Text(numbers))
    return (
        Group(row, Text(f"  {message.doing}", style="dim", no_wrap=True, overflow="ellipsis")) if message.doing else row
    )


def _live(stream: TextIO, shown: RenderableType) -> Live:
    from rich.console import Console
    from rich.live import Live

    # By default, Live replaces sys.stdout and sys.stderr, which would bypass the collector.
    return Live(
        shown,
        console=Console(file=stream),
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )
