"""Fixtures, and what the marks ``quick`` and ``xdist_group`` do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from browser import chromium, page  # noqa: F401 - fixtures, one browser for all files

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores: threads of torch beside those of another worker wait for each other. It is read once,
    # by the first import of torch, here and in the processes that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import opbridge.verbs  # noqa: F401 - installs the hooks of the old ways, which every user of a verb has


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the cases of a parametrized test that its mark ``quick`` does not name."""
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None and not any(text in item.name.partition("[")[2] for text in mark.args):
            item.add_marker(pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Let ``-n`` keep the tests of one ``xdist_group`` in one worker, and let tests be interrupted.

    A shell starts background processes with SIGINT ignored, and programs that tests start inherit that.
    """
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "loadgroup"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a model, and caches of its own."""
    from command_lines import small_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("SLOW", str(tmp_path / "slow"))
    small_model(tmp_path / "m.onnx")
    return tmp_path
