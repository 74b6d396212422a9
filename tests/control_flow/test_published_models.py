"""Models with the control flow of published ones are exported, and verified on every path."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import MODELS

import opbridge


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("name", MODELS)
def test_verified_on_every_path(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    bundle = opbridge.export(model.make(), model.args(), dynamic_shapes=model.dynamic_shapes, path=tmp_path / "bundle")
    assert bundle.verified
    assert bundle.verification is not None
    notes = [note for case in bundle.verification["cases"] for note in case["notes"]]
    assert [note for note in notes if note.startswith("not verified")] == []
