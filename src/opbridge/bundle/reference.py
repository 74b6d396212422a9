"""The entry that a bundle was exported from."""

from __future__ import annotations

from pathlib import Path

from opbridge.bundle.bundle import Bundle
from opbridge.bundle.trust import Trust
from opbridge.capture.entry import is_file_entry, split_entry
from opbridge.errors import InputError

__all__ = ["find_entry"]


def find_entry(bundle: Bundle) -> str:
    """The text of the entry that a bundle was exported from, in a form that ``load_entry`` finds.

    A relative path refers to the current folder; if it does not exist, ``entry_path`` of ``sources.json`` is used.

    Raises:
        InputError: The bundle records no entry, the entry does not exist, or the bundle is a stranger's.
    """
    text = bundle.entry
    if text is None:
        raise InputError(
            f"The bundle {bundle.path} records no entry, so there is no reference to compare with.",
            fix="name one with --reference file.py:function (in Python: reference=).",
        )
    if bundle.trust is Trust.NONE:
        raise bundle.refusal(
            f"The bundle names {text} as the model to compare with, whose code would run",
            "name the model yourself with --reference file.py:function",
        )
    place, separator, function = split_entry(text)
    if not is_file_entry(place):
        return text
    for candidate in (place, bundle.recorded_path):
        if candidate is not None and Path(candidate).is_file():
            return candidate + separator + function
    raise InputError(
        f"The bundle {bundle.path} was exported from {text}, which is not here.",
        fix="run from the folder it was exported from, or name the entry with --reference file.py:function.",
    )
