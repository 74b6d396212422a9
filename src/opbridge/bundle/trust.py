"""Tells this user's own bundles from those of others: what carries a mark was written here, and is as it was written.

A mark is an HMAC over the digest of a bundle's manifest, a file's name and the file's content, with a key that only
this user can read (user_key.py). Without it nobody can make a mark, so a bundle from another
machine, another user or an older version of opbridge has none. ``marks.json`` in the bundle holds the marks by file.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
import os
from collections.abc import Iterable
from pathlib import Path

from opbridge.user_key import open_regular, read_regular, user_key

__all__ = ["MARKS", "Consent", "Trust", "has_mark", "marks_with"]

MARKS = "marks.json"


class Trust(enum.StrEnum):
    """Why code of a bundle may run."""

    NONE = "none"
    """It may not: the bundle is not this user's, and nobody vouched for it."""

    OWN = "own"
    """This user wrote the bundle on this machine."""

    SIGNED = "signed"
    """It is signed with a key that the user named."""

    GIVEN = "given"
    """The user passed ``trust=True``."""


Consent = bool | str | os.PathLike[str]
"""What a user passes as ``trust``: whether he trusts whoever made a bundle, or the public key that it must be signed
with, a PEM file."""


def has_mark(folder: Path, digest: str, name: str, content: bytes | None = None) -> bool:
    """Whether a file of a bundle carries this user's mark.

    Args:
        folder: The bundle.
        digest: The ``sha256`` of its manifest.
        name: The file's name.
        content: The file's content; None to read it. The manifest's own content is its digest.

    Raises:
        InputError: The user's key can be read by others.
    """
    mark = _read_marks(folder).get(name)
    if mark is None:
        return False
    try:
        found = _digest_of(folder / name) if content is None else hashlib.sha256(content).hexdigest()
    except OSError:
        return False
    return hmac.compare_digest(mark, _mark(digest, name, found))


def marks_with(folder: Path, digest: str, names: Iterable[str], own: Iterable[str] = ()) -> str:
    """The content of ``marks.json`` with the marks of more files; marks that are there are kept.

    Args:
        folder: The bundle.
        digest: The ``sha256`` of its manifest.
        names: The files to mark, which exist.
        own: The names to mark whose content is the digest: the manifest, if the bundle is this user's.

    Raises:
        InputError: The user's key can be read by others.
    """
    marks = _read_marks(folder)
    marks |= {name: _mark(digest, name, hashlib.sha256(digest.encode()).hexdigest()) for name in own}
    marks |= {name: _mark(digest, name, _digest_of(folder / name)) for name in names}
    return json.dumps(marks, indent=2, sort_keys=True) + "\n"


def _read_marks(folder: Path) -> dict[str, str]:
    """The marks by file name; none if the file is absent or damaged, because then nothing is marked."""
    try:
        marks = json.loads(read_regular(folder / MARKS))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(marks, dict):
        return {}
    return {name: mark for name, mark in marks.items() if isinstance(mark, str) and mark.isascii()}


def _digest_of(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _mark(digest: str, name: str, content: str) -> str:
    """The mark of a file whose content has the hash ``content``."""
    message = json.dumps(["opbridge", digest, name, content])
    return hmac.new(user_key(), message.encode(), hashlib.sha256).hexdigest()
