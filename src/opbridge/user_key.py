"""The user's key: what was made with it is known to have been made by this user on this machine.

It is made on first use, in a file that only the user can read, and never leaves the machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from opbridge.errors import InputError

__all__ = ["key_file", "open_regular", "read_regular", "user_key", "xdg_folder"]

_KEY_BYTES = 32
_LARGEST = 1 << 30
"""The bytes of the largest file that is read whole: a sparse file takes no room on a disk, but all in memory."""


def key_file() -> Path:
    """The file of the user's key, in the platform's folder for a user's data."""
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = xdg_folder("XDG_DATA_HOME", ".local/share")
    return folder.absolute() / "opbridge" / "key"


def xdg_folder(variable: str, default: str) -> Path:
    """The user's folder that an environment variable names, by the XDG specification, which ignores relative paths.

    Args:
        variable: The name of the variable, such as ``"XDG_CACHE_HOME"``.
        default: The folder below the user's home folder, if the variable names none.

    Raises:
        RuntimeError: This user has no home folder.
    """
    given = os.environ.get(variable, "")
    return Path(given) if os.path.isabs(given) else Path.home() / default


def user_key() -> bytes:
    """The user's key; one of this process alone if the user has no folder where it can be kept.

    Raises:
        InputError: The file can be read by others, or is damaged.
    """
    try:
        return _key_of(key_file())
    except RuntimeError:  # This user has no home folder.
        return _key_of(None)


@functools.cache
def _key_of(file: Path | None) -> bytes:
    """The key in the file, which is made if there is none; a key of this process alone if it can't be kept."""
    fresh = secrets.token_bytes(_KEY_BYTES)
    if file is None:
        return fresh
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read_key(file)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_key(file, fresh)
        return _read_key(file)
    except OSError:
        return fresh


def _make_key(file: Path, key: bytes) -> None:
    """Write the key so that it appears whole; if another process was faster, its key stays."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(key)
            stream.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, file)
        except FileExistsError:
            pass
        except OSError:  # A disk without hard links.
            os.rename(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _read_key(file: Path) -> bytes:
    key = read_regular(file)
    if os.name != "nt":
        status = os.stat(file, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{file} belongs to another user")
        if status.st_mode & 0o077:
            raise InputError(
                f"{file}, the key that marks your bundles, can be read or written by other users.",
                fix=f"delete it (opbridge makes a new one, and your bundles then need --trust), or, if nobody else "
                f"used it: chmod 600 {file}",
            )
    if len(key) != _KEY_BYTES:
        raise InputError(
            f"{file}, the key that marks your bundles, has {len(key)} bytes instead of {_KEY_BYTES}.",
            fix="delete it: opbridge makes a new one, and bundles that were made before then need --trust.",
        )
    return key


def read_regular(file: Path) -> bytes:
    """The content of a file. Raises OSError for a pipe, a device, a folder or a huge file instead of waiting for it."""
    with open_regular(file) as stream:
        if os.fstat(stream.fileno()).st_size > _LARGEST:
            raise OSError(f"{file.name or file} has more than {_LARGEST >> 20} MiB")
        return stream.read()


@contextlib.contextmanager
def open_regular(file: Path) -> Iterator[BufferedReader]:
    """A file, open to be read. Raises OSError for a pipe, a device or a folder instead of waiting for it."""
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{file.name or file} is not a regular file")
        yield stream
