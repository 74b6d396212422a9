"""A user whose key is in the test's own folder, and what a hostile bundle runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void run(void) {
    FILE *file = fopen(getenv("OPBRIDGE_TEST_PAYLOAD"), "w");
    if (file) fclose(file);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "evil.c").write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "evil.c", "-o", "evil.so"], cwd=folder, check=True)
    return folder / "evil.so"


@pytest.fixture(autouse=True)
def payload(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that every payload writes; and a user whose key is in a folder of the test."""
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("OPBRIDGE_TEST_PAYLOAD", str(folder / "payload ran"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    monkeypatch.setenv("LOCALAPPDATA", str(folder))
    return folder / "payload ran"
