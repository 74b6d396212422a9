"""Files that are expensive to make, each made once, by whichever process comes first."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from opbridge.atomic import locked_folder
from opbridge.errors import BuildError

__all__ = ["cache_folder", "made_once"]


def cache_folder() -> Path:
    """Where compiled kernels are kept: ``OPBRIDGE_CACHE``, otherwise the platform's folder for a user's caches."""
    given = os.environ.get("OPBRIDGE_CACHE")
    if given:
        return Path(given).absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "opbridge" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "opbridge"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opbridge"


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """The file at ``path``, made if it is not there.

    Args:
        path: Where it belongs. Its name says what is in it, so an existing file is the right one.
        make: Writes the file to the path it is given, in the same folder. If it raises, nothing stays behind.

    Raises:
        BuildError: The folder can't be written.
    """
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.with_name(f"{path.name}.lock")):
            if not path.is_file():
                _make(path, make)
    except OSError as error:
        raise BuildError(
            f"The cache of compiled kernels can't be written: {error.strerror}: {error.filename or str(path)!r}.",
            fix="set the environment variable OPBRIDGE_CACHE to a folder that can be written and has room.",
        ) from error
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    # The lock does not hold on every network file system, so the name is this process's alone.
    with locked_folder(path) as folder:
        unfinished = folder / path.name
        make(unfinished)
        os.replace(unfinished, path)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process, and one thread, at a time. The file stays: to delete it would race with the next one."""
    with open(path, "ab") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                # It gives up after ten seconds.
                with contextlib.suppress(OSError):
                    file.seek(0)
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
            yield
        else:
            import fcntl

            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
