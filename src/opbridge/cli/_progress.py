"""Says on stderr what is going on, once the work has taken longer than a second."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

__all__ = ["Progress"]

_PATIENCE = 1.0


class Progress:
    """A callback that takes what is being done: a spinner on a terminal, otherwise a line per message.

    Args:
        stream: Where to write.
        quiet: Never write anything.
    """

    def __init__(self, stream: TextIO, *, quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._message = ""
        self._started = time.monotonic()
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
                self._stream.write(f"{self._message} ...\n")
                self._stream.flush()
            elif self._live is None:
                self._live = _live(self._stream, self._message)
                self._live.start()
            else:
                self._live.update(_spinner(self._message))


def _spinner(message: str) -> Spinner:
    from rich.spinner import Spinner
    from rich.text import Text

    return Spinner("dots", text=Text(message))


def _live(stream: TextIO, message: str) -> Live:
    from rich.console import Console
    from rich.live import Live

    # Left to itself, Live replaces sys.stdout and sys.stderr, where others' output is being collected.
    return Live(
        _spinner(message),
        console=Console(file=stream),
        transient=True,
        refresh_per_second=8,
        redirect_stdout=False,
        redirect_stderr=False,
    )
