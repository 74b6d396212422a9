"""A page in headless Chromium, for the tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = os.environ.get("OPBRIDGE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
"""Named in OPBRIDGE_TEST_CHROMIUM, as .ci/run does, or found on the path."""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser. What a test loads in it must come from a file: it has no network."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt install chromium, or name it in OPBRIDGE_TEST_CHROMIUM")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """An empty page of the size of a screen; errors of its scripts fail the test."""
    context = chromium.new_context(offline=True, viewport={"width": 1200, "height": 800})
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []
