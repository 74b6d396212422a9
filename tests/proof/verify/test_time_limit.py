"""Python code that takes too long is ended, and a loop that never ends for some inputs does not stop a verification."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opbridge
from opbridge.proof.verify import time_limit
from opbridge.proof.verify.time_limit import TooSlow, within


def _spin() -> None:
    while True:
        pass


def _spins_on() -> None:
    """Ends when it is interrupted for the second time."""
    try:
        _spin()
    except TooSlow:
        _spin()


def test_a_function_that_ends_in_time_is_not_interrupted() -> None:
    before = threading.active_count()
    for seconds in (None, 60.0):
        assert within(seconds, lambda: 7) == 7
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("endless", [_spin, _spins_on])
def test_a_function_that_does_not_end(endless: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_AGAIN", 0.05)
    with pytest.raises(TooSlow, match=r"it did not end within 0\.1 s"):
        within(0.1, endless)


def test_nothing_is_raised_after_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends when its limit does: the exception comes in it, or never, also if it is raised again and again."""
    monkeypatch.setattr(time_limit, "_AGAIN", 0.0)

    def busy() -> None:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass

    late = 0
    for _ in range(100):
        try:
            within(0.001, busy)
        except TooSlow:
            late += 1
        for _ in range(100):
            pass
    assert late < 100


class SquareRoot(torch.nn.Module):
    """Newton's method, which does not converge for negative numbers, nor to 1e-4 for very large ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        while ((y * y - x).abs() > 1e-4).any():
            y = 0.5 * (y + x / y)
        return y


@pytest.mark.slow
def test_a_loop_that_does_not_end_for_some_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_SHORTEST", 0.5)
    monkeypatch.setattr(time_limit, "_SLOWDOWN", 1.0)
    monkeypatch.setattr("opbridge.proof.verify.paths._SECONDS", 0.5)
    assert opbridge.export(SquareRoot(), (torch.tensor([2.0, 9.0]),), path=tmp_path / "b").verified
