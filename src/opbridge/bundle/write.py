"""Writing a bundle atomically, by renaming a temporary folder next to it, and replacing its side files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from opbridge.atomic import files_below, replace_file, replace_folder, reported, sync_tree, temporary_sibling
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.checks import (
    BENCHMARK,
    FORMAT,
    MANIFEST,
    REPORT,
    SIDE_FILES,
    SOURCES,
    VERIFICATION,
    file_hash,
    manifest_hash,
    to_json,
)
from opbridge.bundle.destination import check_destination
from opbridge.bundle.trust import MARKS, Trust, marks_with
from opbridge.version import __version__

__all__ = ["write_bundle", "write_side_file"]


def write_bundle(
    path: str | os.PathLike[str],
    manifest: Mapping[str, Any],
    write: Callable[[Path], None],
    *,
    sources: Mapping[str, Any] | None = None,
    verification: Callable[[Path], Mapping[str, Any] | None] | None = None,
    page: Callable[[Mapping[str, Any]], str] | None = None,
    overwrite: bool = False,
) -> Bundle:
    """Write a bundle atomically.

    Args:
        path: The folder to create, including its parents.
        manifest: The manifest without ``format``, ``opbridge``, ``files`` and ``sha256``, which are added here.
        write: A function that writes the model's files into a folder.
        sources: The content of ``sources.json``: ``entry_path``, ``nodes`` and ``operators``.
        verification: A function of the temporary folder with the model's files that returns the content of
            ``verification.json``, or None for no such file.
        page: A function of the future ``Bundle.to_dict()`` that returns the content of ``report.html``; None for no
            such file.
        overwrite: Whether to replace an existing bundle. Other files and folders are never replaced.

    Raises:
        InputError: ``path`` can't be used (:func:`check_destination`), the disk is full, or a file can't be written.
    """
    check_destination(path, overwrite=overwrite)
    target = Path(os.path.realpath(path))
    with temporary_sibling(path, target) as folder:
        with reported(path):
            write(folder)
            complete = _complete(manifest, folder)
            (folder / MANIFEST).write_text(to_json(complete), encoding="utf-8")
        proof = verification(folder) if verification is not None else None
        with reported(path):
            attested = None if proof is None else {**proof, "bundle": complete["sha256"]}
            for name, data in ((SOURCES, sources), (VERIFICATION, attested)):
                if data is not None:
                    (folder / name).write_text(to_json(data), encoding="utf-8")
            written = [name for name in SIDE_FILES if (folder / name).exists()]
            marks = marks_with(folder, complete["sha256"], written, own=(MANIFEST,))
            (folder / MARKS).write_text(marks, encoding="utf-8")
            if page is not None:
                data = {**Bundle(folder, complete, Trust.OWN).to_dict(), "path": str(path)}
                (folder / REPORT).write_text(page(data), encoding="utf-8", errors="replace")
            sync_tree(folder)
            replace_folder(folder, target)
    return Bundle(Path(path), complete, Trust.OWN)


def write_side_file(
    bundle: Bundle, name: str, data: Mapping[str, Any] | str, *, evidence: Collection[str] = ()
) -> None:
    """Write or replace a side file of a bundle atomically, and mark it as the user's.

    Args:
        bundle: The bundle.
        name: The file's name.
        data: JSON data or text.
        evidence: Other side files, already written, that belong to it and are marked too.
    """
    if name not in SIDE_FILES:
        raise ValueError(f"{name!r} is not one of {SIDE_FILES}")
    if name in (VERIFICATION, BENCHMARK) and not isinstance(data, str):
        data = {**data, "bundle": bundle.manifest["sha256"]}
    content = data.encode(errors="replace") if isinstance(data, str) else to_json(data).encode()
    with reported(bundle.path / name, is_new=False):
        replace_file(bundle.path / name, content)
        if name != REPORT:
            marks = marks_with(bundle.path, bundle.manifest["sha256"], [name, *evidence])
            replace_file(bundle.path / MARKS, marks.encode())


def _complete(manifest: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    listed = {
        file.relative_to(folder).as_posix(): {"sha256": file_hash(file), "bytes": file.stat().st_size}
        for file in files_below(folder)
    }
    # Converting to JSON and back makes the caller's data equal to that of a reader of the file.
    complete = json.loads(to_json({**manifest, "format": FORMAT, "opbridge": __version__, "files": listed}))
    return {**complete, "sha256": manifest_hash(complete)}
