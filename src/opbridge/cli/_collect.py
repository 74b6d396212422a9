"""Redirects the output of torch, onnxscript and the engines to a log file."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pdb
import re
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from opbridge.user_key import xdg_folder

__all__ = ["Collector", "log_folder"]

_KEPT_LOGS = 20
_OWN_LOG = re.compile(r"[a-z-]+-\d{8}-\d{6}-\d+_[0-9a-f]{4}\.log")


def log_folder() -> Path:
    """The folder for log files: in the user's cache, or in the temporary directory if that can't be written."""
    with contextlib.suppress(OSError, KeyError, RuntimeError):  # Without a home folder there is no cache.
        cache = Path(os.environ["LOCALAPPDATA"]) if os.name == "nt" else xdg_folder("XDG_CACHE_HOME", ".cache")
        folder = cache / "opbridge" / "logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return _private_folder()


def _private_folder() -> Path:
    """A folder of this user in the temporary directory; a new one if somebody else has taken its name."""
    owner = os.geteuid() if hasattr(os, "geteuid") else ""
    folder = Path(tempfile.gettempdir()) / f"opbridge-logs-{owner}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    is_own = not hasattr(os, "geteuid") or (status.st_uid == owner and not status.st_mode & 0o077)
    return folder if stat.S_ISDIR(status.st_mode) and is_own else Path(tempfile.mkdtemp(prefix="opbridge-logs-"))


class Collector:
    """A context in which everything written to stdout and stderr goes to a log file.

    File descriptors 1 and 2 are redirected (C++ code and child processes write there), and ``sys.stdout`` and
    ``sys.stderr`` are replaced. The screen is restored permanently at ``breakpoint()`` and when stdin is read.

    Args:
        name: The name of the command.
        file: The log file that the user named, which is appended to and never deleted; None for one of opbridge's own.

    Attributes:
        screen: The real stderr, for progress messages.
        path: The log file.

    Raises:
        OSError: ``file`` is not a regular file, or can't be written.
    """

    def __init__(self, name: str, file: str | None = None) -> None:
        self._named = file is not None
        self.path, self._log = _open_log(name) if file is None else _open_named(Path(file))
        self.on_release: Callable[[], None] = lambda: None
        self._saved: dict[int, int] = {}

    def __enter__(self) -> Collector:
        self._real = (sys.stdin, sys.stdout, sys.stderr)
        self._breakpointhook = sys.breakpointhook
        _flush(*self._real[1:])
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):  # The descriptor may be closed.
                self._saved[descriptor] = os.dup(descriptor)
                os.dup2(self._log.fileno(), descriptor)
        self.screen = self._screen()
        self._streams = (_Stream(self._log, self._real[1]), _Stream(self._log, self._real[2]))
        sys.stdout, sys.stderr = self._streams  # type: ignore[assignment]
        sys.stdin = _Keyboard(self._real[0], self.release)  # type: ignore[assignment]
        sys.breakpointhook = self._breakpoint
        self._active = True
        return self

    def __exit__(self, *_: object) -> None:
        released = not self._active
        self._restore()
        if not released:
            # A logging handler may keep one of these streams; its later output is dropped.
            for stream in self._streams:
                stream.target = None
        if self.screen is not self._real[2]:
            self.screen.close()

    def write(self, text: str) -> None:
        """Append to the log; a full disk is ignored."""
        with contextlib.suppress(OSError):
            self._log.write(text)

    def close(self, *, keep: bool) -> Path | None:
        """Close the log. An empty log, or one with ``keep=False``, is deleted; else its path is returned."""
        with contextlib.suppress(OSError):
            self._log.close()
        if self._named:
            return self.path
        with contextlib.suppress(OSError):
            if keep and self.path.stat().st_size:
                return self.path
            self.path.unlink()
        return None

    def release(self) -> None:
        """Restore the screen for a debugger or a prompt."""
        if self._active:
            self.on_release()
            self._restore()

    def _restore(self) -> None:
        if not self._active:
            return
        self._active = False
        _flush(*self._streams)
        for stream, real in zip(self._streams, self._real[1:], strict=True):
            stream.target = real
        sys.stdin, sys.stdout, sys.stderr = self._real
        sys.breakpointhook = self._breakpointhook
        if self.screen is not self._real[2]:
            self.screen.flush()
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)
            os.close(saved)

    def _screen(self) -> TextIO:
        real = self._real[2]
        try:
            is_descriptor = real.fileno() == 2 and 2 in self._saved
        except (OSError, AttributeError, ValueError):
            is_descriptor = False
        if not is_descriptor:
            return real
        return open(os.dup(self._saved[2]), "w", encoding=real.encoding, errors="backslashreplace", buffering=1)

    def _breakpoint(self, *args: Any, **kwargs: Any) -> Any:
        self.release()
        if self._breakpointhook is sys.__breakpointhook__ and not os.environ.get("PYTHONBREAKPOINT"):
            return pdb.Pdb().set_trace(sys._getframe(1))  # The default hook would stop in this function.
        return self._breakpointhook(*args, **kwargs)


class _Stream(io.TextIOBase):
    """Replaces ``sys.stdout`` or ``sys.stderr``; with ``target=None`` the output is dropped."""

    def __init__(self, target: TextIO, real: TextIO) -> None:
        self.target: TextIO | None = target
        self._real = real

    def write(self, text: str) -> int:
        if self.target is not None and self.target is not self._real:
            with contextlib.suppress(OSError):  # A full disk must not stop the command.
                self.target.write(text)
        elif self.target is not None:
            self.target.write(text)
        return len(text)

    def flush(self) -> None:
        if self.target is not None:
            _flush(self.target)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.target is self._real and self._real.isatty()

    def fileno(self) -> int:
        return self._real.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def buffer(self) -> Any:
        return io.BytesIO() if self.target is None else self.target.buffer


class _Keyboard:
    """Replaces ``sys.stdin``; reading from it restores the screen first."""

    def __init__(self, real: TextIO, release: Callable[[], None]) -> None:
        self._real = real
        self._release = release

    def readline(self, *args: Any) -> str:
        self._release()
        return self._real.readline(*args)

    def read(self, *args: Any) -> str:
        self._release()
        return self._real.read(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _flush(*streams: Any) -> None:
    for stream in streams:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _open_named(path: Path) -> tuple[Path, TextIO]:
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path, path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)


def _open_log(name: str) -> tuple[Path, TextIO]:
    try:
        folder = log_folder()
    except OSError:
        path = Path(os.devnull)
        return path, path.open("a", encoding="utf-8")
    own = [file for file in folder.glob("*.log") if _OWN_LOG.fullmatch(file.name) and not file.is_symlink()]
    for file in sorted(own, key=lambda file: file.name.rpartition("-")[0].partition("-")[2])[:-_KEPT_LOGS]:
        with contextlib.suppress(OSError):
            file.unlink()
    path = folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}_{secrets.token_hex(2)}.log"
    try:
        # Append mode, because C++ code and Python both write to the file.
        return path, path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except OSError:
        path = Path(os.devnull)
        return path, path.open("a", encoding="utf-8")
