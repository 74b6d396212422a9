"""A cache of files that are expensive to make; the first process that needs a file makes it.

Beside each file lies a code of its content, made with the user's key: a file that was truncated, changed, or written by
anybody else is made again, and never loaded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from opbridge.atomic import locked_folder
from opbridge.errors import BuildError
from opbridge.user_key import open_regular, read_regular, user_key, xdg_folder

__all__ = ["cache_folder", "is_made", "made_once"]

_LARGEST = 1 << 30
"""The bytes of the largest file that is checked: a sparse file of a terabyte takes no room, but minutes to read."""
_MOST_SECONDS, _PERIOD = 1800.0, 0.05
"""How long a process waits for another one that makes the same file, as long as the compiler may take; how often it
looks."""


def cache_folder() -> Path:
    """The folder of compiled kernels: ``OPBRIDGE_CACHE``, otherwise the platform's folder for a user's caches."""
    given = os.environ.get("OPBRIDGE_CACHE")
    if given:
        return Path(given).absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "opbridge" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "opbridge"
    return xdg_folder("XDG_CACHE_HOME", ".cache") / "opbridge"


def made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """The file at ``path``, created if it does not exist.

    Args:
        path: The file. Its name identifies how it is made, so an existing file is up to date.
        make: A function that writes the file to the path it gets, in the same folder. If it raises, no file is left.

    Raises:
        BuildError: The folder can't be written, or a folder or a pipe is where a file is to be.
    """
    if is_made(path):
        return path
    for file in (path, _code_file(path)):
        if file.exists() and not file.is_file():
            raise BuildError(
                f"{file} in the cache of compiled kernels is not a file.",
                fix="delete it, or set the environment variable OPBRIDGE_CACHE to another folder.",
            )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(path.with_name(f"{path.name}.lock")):
            if not is_made(path):
                _make(path, make)
    except OSError as error:
        raise BuildError(
            f"The cache of compiled kernels can't be written: {error.strerror}: {error.filename or str(path)!r}.",
            fix="set the environment variable OPBRIDGE_CACHE to a folder that can be written and has room.",
        ) from error
    return path


def is_made(path: Path) -> bool:
    """Whether the file at ``path`` is complete, and was made here by this user."""
    try:
        return hmac.compare_digest(read_regular(_code_file(path)), _code(path.name, path))
    except OSError:
        return False


def _code_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.code")


def _code(name: str, file: Path) -> bytes:
    with open_regular(file) as stream:
        if os.fstat(stream.fileno()).st_size > _LARGEST:
            raise OSError(f"{file} is too large for a compiled kernel")
        content = hashlib.file_digest(stream, "sha256").digest()
    return hmac.new(user_key(), b"cache\0" + content + os.fsencode(name), hashlib.sha256).hexdigest().encode()


def _make(path: Path, make: Callable[[Path], object]) -> None:
    # The lock does not work on every network file system, so the temporary name is unique to this process.
    with locked_folder(path) as folder:
        unfinished = folder / path.name
        make(unfinished)
        code = folder / "code"
        code.write_bytes(_code(path.name, unfinished))
        os.replace(unfinished, path)
        os.replace(code, _code_file(path))


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """A lock that one thread of one process holds at a time. The file is kept, since deleting it would be a race.

    It only saves work. Where there are no locks, or another process has held it for too long (it may be stopped), the
    code inside runs without it.
    """
    with open(path, "ab") as file:
        ends = time.monotonic() + _MOST_SECONDS
        while not _is_locked(file) and time.monotonic() < ends:
            time.sleep(_PERIOD)
        yield


def _is_locked(file: IO[bytes]) -> bool:
    """Lock a file; False if another process has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Of all others, such as those of a network file system, waiting is in vain.
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True
