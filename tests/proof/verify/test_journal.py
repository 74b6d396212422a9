"""Verifications of many cases: interrupted and gone on with, and how far they are."""

from __future__ import annotations

import copy
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import crashing_engine
import numpy as np
import pytest
from command_lines import Ran, slow_engine, small_model
from command_lines import opbridge as command_line

import opbridge
from opbridge.cli._progress import Progress
from opbridge.proof.progress import Count
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.verification import CaseResult, Comparison

pytestmark = pytest.mark.newest


def cases(count: int) -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(seed).standard_normal((seed + 1, 4), np.float32)} for seed in range(count)]


def without_seconds(verification: Any) -> Any:
    data = copy.deepcopy(verification.to_dict() if not isinstance(verification, dict) else verification)
    del data["seconds"], data["resumed"]
    data.pop("bundle", None)  # only in the file
    return data


def journals(place: Path) -> list[Path]:
    return sorted((place / "kept" / "verifications").glob("*.jsonl"))


@pytest.fixture
def bundle(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    crashing_engine.install(place / "engine", monkeypatch, "")
    monkeypatch.setenv("OPBRIDGE_CACHE", str(place / "kept"))
    monkeypatch.setattr("opbridge.proof.verify.repeats._MOST", 0)  # The runs are counted.
    opbridge.export("m.onnx", path="b", engines=["crashing"], verify=False)
    return place / "b"


class Interrupt:
    """Progress that is interrupted before a case."""

    def __init__(self, case: int) -> None:
        self.case = case

    def __call__(self, message: str) -> None:
        if isinstance(message, Count) and message.done == self.case:
            raise KeyboardInterrupt


def ran(place: Path) -> int:
    """How many runs the slow engine has noted since the last time it was asked."""
    file = place / "slow"
    count = len(file.read_text().split()) if file.exists() else 0
    file.unlink(missing_ok=True)
    return count


@pytest.mark.slow
def test_an_interrupted_verification_goes_on_where_it_stopped(bundle, place, monkeypatch):
    monkeypatch.setenv("CRASHES", "Sinh=note")
    given = cases(6)
    uninterrupted = opbridge.verify(bundle, inputs=given)
    assert ran(place) == 6
    assert journals(place) == []
    with pytest.raises(KeyboardInterrupt):
        opbridge.verify(bundle, inputs=given, progress=Interrupt(4))
    assert ran(place) == 4
    (journal,) = journals(place)
    journal.write_text(journal.read_text() + '{"key": "half a li')  # As a process that is killed may leave it.
    resumed = opbridge.verify(bundle, inputs=given)
    # The first case, and the two that were not run.
    assert ran(place) == 3
    assert (uninterrupted.resumed, resumed.resumed) == (0, 3)
    assert "3 of these had passed before the verification was interrupted" in resumed.summary()
    assert without_seconds(resumed) == without_seconds(uninterrupted)
    assert without_seconds(json.loads((bundle / "verification.json").read_text())) == without_seconds(resumed)
    assert journals(place) == []


MODULE = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.sinh(x) + 1


def net():
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    return {"model": Net(), "args": (torch.randn(3, 4),), "dynamic_shapes": shapes}
"""


@pytest.mark.slow
def test_a_verification_of_a_pytorch_model_that_was_killed_goes_on(bundle, place, monkeypatch, capfd):
    (place / "net.py").write_text(MODULE)
    (place / "given").mkdir()
    for number, feeds in enumerate(cases(4)):
        np.savez(place / "given" / f"{number}.npz", **feeds)
    assert Ran(capfd, "export", "net.py:net", "-o", "t", "--engine", "crashing", "--no-verify", "-q").code == 0
    monkeypatch.setenv("CRASHES", "Sinh=slow")
    command = ["verify", "t", "--inputs", "given"]
    process = command_line(*command)
    slow_engine(place, 3)
    process.kill()
    process.communicate(timeout=60)
    (journal,) = journals(place)
    assert len(journal.read_text().splitlines()) == 2
    ran(place)
    monkeypatch.setenv("CRASHES", "Sinh=note")
    again = Ran(capfd, *command)
    assert again.code == 0
    assert "1 case had passed before the verification was interrupted" in again.out
    # The first, and the two that had not passed.
    assert ran(place) == 3
    assert journals(place) == []


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("change", ["inputs", "seed", "bundle"])
def test_what_has_changed_is_run_again(bundle, place, monkeypatch, change):
    monkeypatch.setenv("CRASHES", "Sinh=note")
    given: list[dict[str, np.ndarray]] = cases(5)
    with pytest.raises(KeyboardInterrupt):
        opbridge.verify(bundle, inputs=given, progress=Interrupt(4))
    ran(place)
    options: dict[str, Any] = {}
    expected = 5
    if change == "inputs":
        given[2] = {"x": given[2]["x"] + 1}
        expected = 3
    elif change == "seed":
        options["seed"] = 1
    else:
        small_model(place / "m.onnx", weights=4)
        opbridge.export("m.onnx", path="b", engines=["crashing"], verify=False, overwrite=True, opset=17)
    opbridge.verify(bundle, inputs=given, **options)
    assert ran(place) == expected


@pytest.mark.slow
def test_a_case_that_failed_is_run_again(bundle, place, monkeypatch):
    monkeypatch.setenv("CRASHES", "Sinh=note,Add=negative")
    given = [{"x": np.ones((1, 4), np.float32)}, {"x": np.full((1, 4), np.nan, np.float32)}, *cases(2)]
    whole = opbridge.verify(bundle, inputs=given)
    with pytest.raises(KeyboardInterrupt):
        opbridge.verify(bundle, inputs=given, progress=Interrupt(3))
    assert without_seconds(opbridge.verify(bundle, inputs=given)) == without_seconds(whole)


def test_a_journal_keeps_numbers_exactly(tmp_path, monkeypatch):
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path))
    comparison = Comparison(
        "y", "a", "within budget", max_abs=0.1, max_rel=float("inf"), histogram=((0.5, 3), (float("inf"), 0))
    )
    result = CaseResult("a", {"n": 2}, "passed", notes=("said",))
    feeds = {"x": np.arange(3), "s": np.array(["a"], object)}
    Journal({"key": 1}).of_engine("e").end(feeds, result, [comparison])
    engine = Journal({"key": 1}).of_engine("e")
    assert engine.begin("a", feeds) is None  # The first is always run.
    passed = engine.begin("a", feeds)
    assert (passed.result, passed.comparisons) == (result, (comparison,))
    assert engine.begin("a", {**feeds, "x": np.arange(4)}) is None
    other = Journal({"key": 1}).of_engine("e", "another reference")
    other.begin("first", feeds)
    assert other.begin("a", feeds) is None


def test_a_journal_that_can_not_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path / "file"))
    engine = Journal({"key": 1}).of_engine("e")
    engine.begin("a", {})
    engine.end({}, CaseResult("a"), [])


def test_journals_nobody_needs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("OPBRIDGE_CACHE", str(tmp_path))
    (tmp_path / "verifications").mkdir()
    for name, days in (("old", 31), ("new", 29)):
        file = tmp_path / "verifications" / f"{name}.jsonl"
        file.write_text("")
        os.utime(file, (time.time() - days * 86400,) * 2)
    Journal({"key": 1})
    assert [file.stem for file in (tmp_path / "verifications").iterdir()] == ["new"]


# What is shown.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test turns on."""
    now = [0.0]
    monkeypatch.setattr("opbridge.cli._progress.time.monotonic", lambda: now[0])
    return now


def test_counts_elsewhere_are_a_line_in_ten_seconds(clock):
    stream = io.StringIO()
    with Progress(stream, quiet=False) as progress:
        clock[0] = 5.0
        progress("capturing")
        for done in range(30):
            clock[0] += 1
            progress(Count("verifying on e", done, 30, f"case {done}"))
    assert stream.getvalue().splitlines() == [
        "capturing ...",
        "verifying on e: 0 of 30, case 0 ...",
        "verifying on e: 10 of 30, case 10, about 20 s left ...",
        "verifying on e: 20 of 30, case 20, about 10 s left ...",
    ]


def test_counts_on_a_terminal_are_a_bar(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(stream, quiet=False) as progress:
        clock[0] = 5.0
        progress(Count("verifying on e", 1, 400))
        clock[0] = 8.0
        progress(Count("verifying on e", 2, 400))
        progress._live.refresh()
    assert "verifying on e" in stream.getvalue()
    assert "2 of 400, about 20 min left" in stream.getvalue()
    assert "━" in stream.getvalue()


def test_quiet_is_silent(clock):
    stream = Terminal()
    with Progress(stream, quiet=True) as progress:
        clock[0] = 5.0
        progress(Count("verifying on e", 1, 400))
    assert stream.getvalue() == ""
