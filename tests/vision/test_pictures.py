"""The picture of docs/vision.md shows what the operators compute."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest
from places import ROOT

pytestmark = [pytest.mark.newest, pytest.mark.slow]


def texts(picture: str) -> list[str]:
    return [str(element.text) for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]


def test_the_picture_is_made_by_the_operators() -> None:
    spec = importlib.util.spec_from_file_location("vision_pictures", ROOT / "site" / "vision_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = Path(module.FILE)
    assert texts(module.picture()) == texts(shown.read_text(encoding="utf-8"))
    assert f"](pictures/{shown.name})" in (ROOT / "docs" / "vision.md").read_text()
