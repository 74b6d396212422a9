"""Modules that are imported during a capture."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from opbridge.torch_graph import imported
from opbridge.torch_graph.imported import importing_outside


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The modules ``test_imported_a`` and ``_b`` can be imported; the list gets an item for each that runs outside."""
    for name in ("a", "b"):
        (tmp_path / f"test_imported_{name}.py").write_text("import torch\nONE = torch.ones(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    ran: list[str] = []
    own = imported.outside_capture
    monkeypatch.setattr(imported, "outside_capture", lambda: ran.append("outside") or own())  # type: ignore[func-returns-value]
    yield ran
    for name in ("a", "b"):
        sys.modules.pop(f"test_imported_{name}", None)


def test_their_code_runs_outside_the_capture_but_not_what_another_thread_imports(outside: list[str]) -> None:
    with importing_outside():
        importlib.import_module("test_imported_a")
        assert outside == ["outside"]
        other = threading.Thread(target=importlib.import_module, args=("test_imported_b",))
        other.start()
        other.join()
    assert outside == ["outside"]
    assert torch.equal(sys.modules["test_imported_b"].ONE, torch.ones(1))
