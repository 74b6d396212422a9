"""The readers on a few changed files of every area; `fuzz/readers.py` tries thousands."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from opbridge.errors import InputError

pytestmark = pytest.mark.newest

_spec = importlib.util.spec_from_file_location("readers", ROOT / "fuzz" / "readers.py")
assert _spec is not None
assert _spec.loader is not None
readers = importlib.util.module_from_spec(_spec)
sys.modules["readers"] = readers
_spec.loader.exec_module(readers)


@pytest.mark.parametrize("area", readers.AREAS)
def test_a_changed_file_is_read_or_refused(area: str) -> None:
    tally = readers.fuzz(area, examples=20, first_seed=1)
    assert tally.failures == []
    assert tally.tried >= 20


def test_a_failure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: object) -> None:
        if file.read_bytes()[:4] != b"\x7fELF":  # type: ignore[attr-defined]
            raise KeyError("planted")

    monkeypatch.setitem(readers.AREAS, "planted", readers._of_bytes(b"\x7fELF", ".so", fail))
    (failure,) = readers.fuzz("planted", examples=200, first_seed=1).failures
    assert "planted" in failure
    assert "Failing test case" in failure or "Falsifying example" in failure


def _far_table(content: bytes) -> bytes:
    """A library whose table of segments begins beyond every file."""
    return content[:32] + b"\xff" * 8 + content[40:]


def _not_text(content: bytes) -> bytes:
    """A model whose function produces a value with a name that is not UTF-8."""
    head, _, tail = content.rpartition(b"\x01q")
    return head + b"\x01\xff" + tail


FOUND = {
    "a name that is not UTF-8": ("model", _not_text, "not UTF-8 text"),
    "segments beyond the end": ("library", _far_table, "is truncated"),
    "a later zip format": ("arrays", lambda content: content.replace(b"PK\1\2-\3-", b"PK\1\2-\3@"), "arrays from"),
}
"""What the fuzzer found, by area: what must be an error with a fix."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused(name: str, tmp_path: Path) -> None:
    area, change, message = FOUND[name]
    originals = {"model": readers._model().SerializeToString(), "library": readers._library()}
    if area == "arrays":
        np.savez(tmp_path / "a.npz", x=np.ones(3))
        originals[area] = (tmp_path / "a.npz").read_bytes()
    changed = change(originals[area])
    assert changed != originals[area]
    _, read = readers.AREAS[area](tmp_path)
    with pytest.raises(InputError, match=message):
        read(changed)
