"""Writes folders and files atomically: a temporary sibling is written, synced, and renamed.

A process holds a lock on each of its temporary siblings. Siblings of a process that was killed are not locked, and the
next process that writes to the same place deletes them; for temporary folders that is any other process. Their names
end with a code made with the user's key, so that nothing else is ever taken for one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import hmac
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from opbridge.errors import InputError
from opbridge.user_key import user_key

__all__ = [
    "TemporaryFolder",
    "check_target",
    "delete_stale",
    "files_below",
    "is_temporary",
    "locked_file",
    "locked_folder",
    "replace_file",
    "replace_folder",
    "reported",
    "sync",
    "sync_tree",
    "temporary_sibling",
]

_TEMPORARY = re.compile(r"\.(?P<target>.+)\.(?P<token>[0-9a-f]{8})[0-9a-f]{16}(?P<older>\.old)?")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextlib.contextmanager
def reported(path: str | os.PathLike[str], *, is_new: bool = True) -> Iterator[None]:
    """Turn an OSError inside into an InputError about ``path``.

    Args:
        path: The path that can't be written.
        is_new: Whether the user chose the path in this call; False for a file of an existing bundle.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = error.strerror or str(error)
        if is_new:
            left = "Nothing was written."
            fix = "free some disk space, or choose another disk with -o." if full else "choose another folder with -o."
        else:
            left = "The existing file is unchanged."
            fix = "free some disk space." if full else "give yourself permission to write there."
        raise InputError(f"Can't write {path}: {reason}. {left}", fix=fix) from error


def check_new_folder(path: str | os.PathLike[str]) -> None:
    """Check, before any work is done, that a folder can be made at ``path``. Raises InputError if it can't."""
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{path} exists already.", fix="choose a new folder with -o.")
    parent = next(folder for folder in target.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"Can't write {path}: no folder can be made in {parent}.", fix="choose another folder with -o."
        )


@contextlib.contextmanager
def temporary_sibling(path: str | os.PathLike[str], target: Path) -> Iterator[Path]:
    """A new folder next to ``target``, like :func:`locked_folder`; errors name ``path``."""
    with contextlib.ExitStack() as stack:
        with reported(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(locked_folder(target))
        yield folder


@contextlib.contextmanager
def locked_folder(target: Path) -> Iterator[Path]:
    """A new folder next to ``target``, on the same disk; it is deleted at the end unless it was renamed.

    Raises:
        InputError: ``target`` is a pipe, a device or the like, which a rename would delete.
    """
    check_target(target)
    with _locked_folder(target, 0o777) as folder:
        yield folder


@contextlib.contextmanager
def _locked_folder(target: Path, mode: int) -> Iterator[Path]:
    delete_stale(target)
    with contextlib.ExitStack() as stack:
        folder = _new_locked(target, lambda path: path.mkdir(mode), stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked_file(target: Path) -> Iterator[Path]:
    """A new, empty file next to ``target``; it is deleted at the end unless it was renamed.

    Raises:
        InputError: ``target`` is a pipe, a device or the like, which a rename would delete.
    """
    check_target(target)
    delete_stale(target)
    with contextlib.ExitStack() as stack:
        file = _new_locked(target, Path.touch, stack)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)


class TemporaryFolder:
    """A private folder among the temporary files, as ``tempfile.TemporaryDirectory`` makes one.

    If the process is killed, the next one that makes such a folder deletes it.

    Attributes:
        name: The path of the folder.
    """

    def __init__(self) -> None:
        stack = contextlib.ExitStack()
        self.name = str(stack.enter_context(_locked_folder(Path(tempfile.gettempdir(), "opbridge"), 0o700)))
        self._delete = weakref.finalize(self, stack.close)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Delete the folder, if it still exists."""
        self._delete()


def _new_locked(target: Path, make: Callable[[Path], None], stack: contextlib.ExitStack) -> Path:
    """A new temporary sibling, which ``make`` makes, locked until ``stack`` is closed."""
    while True:
        sibling = target.with_name(_temporary_name(target.name, secrets.token_hex(4)))
        make(sibling)
        # Another process may take it for a stale one, and delete it, before it is locked.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            stack.enter_context(_lock(sibling, is_own=True))
            if sibling.exists():
                return sibling


def check_target(target: Path) -> None:
    """Raise InputError for what can't be replaced: a pipe, a device, a read-only folder, or a path without a name."""
    if not target.name:
        raise InputError(f"{target} is a folder that can't be replaced.", fix="name a file or a new folder with -o.")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        kind = target.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise InputError(
                f"{target} is a pipe or a device, and writing there would replace it by a file.",
                fix="name a regular file with -o.",
            )
        if stat.S_ISDIR(kind) and not os.access(target, os.W_OK):
            raise InputError(f"{target} is a folder that can't be written to.", fix="choose another folder with -o.")


def _temporary_name(target: str, token: str) -> str:
    message = b"temporary\0" + token.encode() + b"\0" + os.fsencode(target)
    return f".{target}.{token}{hmac.new(user_key(), message, hashlib.sha256).hexdigest()[:16]}"


def replace_folder(folder: Path, target: Path) -> None:
    """Put ``folder`` in the place of ``target``; a bundle that was there stays in place if that fails."""
    if not target.exists():
        os.rename(folder, target)
    elif _exchange(folder, target):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        older = folder.with_name(folder.name + ".old")
        os.rename(target, older)
        try:
            os.rename(folder, target)
        except BaseException:
            os.rename(older, target)
            raise
        shutil.rmtree(older, ignore_errors=True)
    sync(target.parent)


def replace_file(file: Path, content: bytes) -> None:
    """Write a file atomically; an existing file is replaced."""
    with locked_file(file) as temporary:
        with temporary.open("r+b") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is one that this module made for this user."""
    return _target_of(name) is not None


def delete_stale(target: Path) -> None:
    """Delete the temporary siblings of ``target`` whose processes have ended.

    If a process was killed while it replaced an older folder, the older folder is restored.
    """
    for sibling in _siblings(target):
        with contextlib.suppress(OSError), _lock(_owner(sibling)) as is_locked:
            if not is_locked:
                continue
            if sibling.name.endswith(".old") and not target.exists():
                os.rename(sibling, target)
            elif sibling.is_dir():
                shutil.rmtree(sibling, ignore_errors=True)
            else:
                sibling.unlink()


def _siblings(target: Path) -> list[Path]:
    """The temporary siblings of ``target``; the older ones of folders come first."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(target.parent):
            if name.startswith(f".{target.name}.") and _target_of(name) == target.name:
                found.append(target.with_name(name))
    return sorted(found, key=lambda sibling: not sibling.name.endswith(".old"))


def _target_of(name: str) -> str | None:
    """The name of the target of a temporary sibling; None for any other name."""
    match = _TEMPORARY.fullmatch(name)
    if match is None:
        return None
    own = _temporary_name(match["target"], match["token"]) + (match["older"] or "")
    return match["target"] if hmac.compare_digest(os.fsencode(own), os.fsencode(name)) else None


def _owner(sibling: Path) -> Path:
    """What is locked as long as the process lives that made ``sibling``."""
    folder = sibling.with_name(sibling.name.removesuffix(".old"))
    return folder if folder.exists() else sibling


@contextlib.contextmanager
def _lock(path: Path, *, is_own: bool = False) -> Iterator[bool]:
    """A lock that ends with this process; False if another has it, or there are none on this system or disk.

    Raises:
        BlockingIOError: Another process has it, and ``is_own`` says that ``path`` was made by this one.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except OSError as error:
            if is_own and isinstance(error, BlockingIOError):
                raise
            is_locked = False
        yield is_locked
    finally:
        os.close(descriptor)


def _exchange(folder: Path, target: Path) -> bool:
    """Exchange two folders in one step, so that there is always a whole one. False where the system can't."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(folder), os.fsencode(target))
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def sync_tree(folder: Path) -> None:
    """Bring a folder and all in it to the disk."""
    files = files_below(folder)
    for entry in (*files, *{file.parent for file in files}, folder):
        sync(entry)


def files_below(folder: Path) -> list[Path]:
    """The files in a folder and in those inside of it, sorted.

    Raises:
        OSError: A folder can't be read; ``Path.rglob`` would leave out what is in it.
    """

    def fail(error: OSError) -> None:
        raise error

    return sorted(Path(place, name) for place, _, names in os.walk(folder, onerror=fail) for name in names)


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's entries, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows can't open a folder, and orders renames by its own journal.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
