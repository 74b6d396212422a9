"""The place where a bundle is written: only an older bundle of opbridge is ever replaced."""

from __future__ import annotations

import os
from pathlib import Path

from opbridge.atomic import delete_stale
from opbridge.bundle.checks import MANIFEST, SIDE_FILES, parsed, unlisted_files
from opbridge.errors import InputError
from opbridge.user_key import read_regular

__all__ = ["check_destination"]


def check_destination(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Check, before any work is done, that a bundle can be written to ``path``.

    Raises:
        InputError: ``path`` exists and must not be replaced, or the parent folder is not writable.
    """
    target = Path(os.path.realpath(path))
    delete_stale(target)
    if target.exists():
        _check_replaceable(Path(path), target, overwrite)
    parent = next(folder for folder in target.parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"Can't write {path}: {parent} is a file.", fix="choose an output path below a folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        if os.statvfs(parent).f_flag & os.ST_RDONLY:
            raise InputError(f"Can't write {path}: {parent} is read-only.", fix="choose another disk with -o.")
        raise InputError(
            f"Can't write {path}: no permission to create files in {parent}.",
            fix="choose another output folder, or give yourself write permission there.",
        )


def _check_replaceable(path: Path, target: Path, overwrite: bool) -> None:
    if not target.is_dir():
        raise InputError(f"{path} exists and is not a folder.", fix="choose another output path with -o.")
    if not any(target.iterdir()):
        return
    if not _is_bundle(target):
        raise InputError(
            f"{path} exists and is not a bundle (it has no {MANIFEST} of opbridge), so it is never replaced.",
            fix="choose a new folder with -o.",
        )
    if not overwrite:
        raise InputError(
            f"There is already a bundle at {path}.",
            fix="choose another folder with -o, or replace it with --overwrite (in Python: overwrite=True).",
        )
    if strangers := _strangers(target):
        raise InputError(
            f"{path} holds files that are not the bundle's, and replacing the bundle would delete them: "
            f"{', '.join(strangers[:5])}{', ...' if len(strangers) > 5 else ''}.",
            fix="move them elsewhere, or choose another folder with -o.",
        )


def _is_bundle(folder: Path) -> bool:
    try:
        manifest = parsed(read_regular(folder / MANIFEST))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "format" in manifest and isinstance(manifest.get("files"), dict)


def _strangers(folder: Path) -> list[str]:
    return unlisted_files(folder, {MANIFEST, *SIDE_FILES, *parsed(read_regular(folder / MANIFEST))["files"]})
