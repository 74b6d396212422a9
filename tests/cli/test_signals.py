"""Signals that come while a temporary file is made or deleted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbridge.atomic import locked_file, locked_folder
from opbridge.cli._signals import Signals, Terminated, handled

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process can handle")


def followed_by_a_signal(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGTERM)
        return result

    return called


@pytest.mark.parametrize(("locked", "make"), [(locked_file, "touch"), (locked_folder, "mkdir")])
def test_nothing_is_left_by_a_signal_that_comes_when_it_is_made(
    locked: Callable[..., Any], make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, make, followed_by_a_signal(getattr(Path, make)))
    with pytest.raises(Terminated), handled(Signals()), locked(tmp_path / "out"):
        time.sleep(10)  # The signal is handled a moment later.
    assert not list(tmp_path.iterdir())
