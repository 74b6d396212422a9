"""The entry that a bundle was exported from."""

from __future__ import annotations

from pathlib import Path

from opbridge.bundle.bundle import Bundle
from opbridge.capture.entry import is_file_entry, split_entry
from opbridge.errors import InputError

__all__ = ["find_entry"]


def find_entry(bundle: Bundle) -> str:
    """The text of the entry that a bundle was exported from, in a form that ``load_entry`` finds.

    A relative path refers to the current folder; if it does not exist, ``entry_path`` of ``sources.json`` is used.

    Raises:
        InputError: The bundle records no entry, or the entry does not exist.
    """
    text = bundle.entry
    if text is None:
        raise InputError(
            f"The bundle {bundle.path} records no entry, so there is no reference to compare with.",
            fix="name one with --reference file.py:function (in Python: reference=).",
        )
    place, separator, function = split_entry(text)
    if not is_file_entry(place):
        return text
    recorded = bundle.sources.get("entry_path")
    for candidate in (place, recorded):
        if isinstance(candidate, str) and Path(candidate).is_file():
            return candidate + separator + function
    raise InputError(
        f"The bundle {bundle.path} was exported from {text}, which is not here.",
        fix="run from the folder it was exported from, or name the entry with --reference file.py:function.",
    )
