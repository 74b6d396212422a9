"""Writes a folder so that it appears whole or not at all: a temporary sibling, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from opbridge.errors import InputError

__all__ = ["replace_folder", "reported", "sync", "sync_tree", "temporary_sibling"]


@contextlib.contextmanager
def reported(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError inside into an InputError about ``path``."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = error.strerror or str(error)
        raise InputError(
            f"Can't write {path}: {reason}. Nothing was left there.",
            fix="free some disk space, or choose another disk with -o." if full else "choose another folder with -o.",
        ) from error


@contextlib.contextmanager
def temporary_sibling(path: str | os.PathLike[str], target: Path) -> Iterator[Path]:
    """A new folder beside ``target``, on the same disk; whatever is still there in the end is deleted."""
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    with reported(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace_folder(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``; a bundle that was there is back in place if that fails."""
    if not target.exists():
        os.rename(folder, target)
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


def sync_tree(folder: Path) -> None:
    """Bring a folder and all in it to the disk."""
    for entry in (*folder.rglob("*"), folder):
        sync(entry)


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's entries, to the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows can't open a folder, and orders renames by its own journal.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
