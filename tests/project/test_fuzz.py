"""What `python fuzz` tries by the thousand, on a few cases of every kind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
import forked
import numpy as np
import pytest
import readers
from places import ROOT

from opbridge.cli import build_parser
from opbridge.errors import InputError

pytestmark = pytest.mark.newest


@pytest.mark.quick("arrays", every=4)
@pytest.mark.parametrize("area", readers.AREAS)
def test_a_changed_file_is_read_or_refused(area: str) -> None:
    tally = readers.fuzz(area, examples=20, first_seed=1)
    assert tally.failures == []
    assert tally.tried >= 20


@pytest.mark.slow
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


def _later_zip(content: bytes) -> bytes:
    """An archive whose first file needs version 6.4 of the format."""
    place = content.index(b"PK\1\2") + 6
    return content[:place] + b"@" + content[place + 1 :]


FOUND = {
    "a name that is not UTF-8": ("model", _not_text, "not UTF-8 text"),
    "segments beyond the end": ("library", _far_table, "is truncated"),
    "a number beyond every range": (
        "verification",
        lambda data: {**data, "seconds": {"runs": 10**400}},
        "an integer of 401 digits",
    ),
    "a later zip format": ("arrays", _later_zip, "arrays from"),
}
"""What the fuzzer found, by area: what must be an error with a fix."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused(name: str, tmp_path: Path) -> None:
    area, change, message = FOUND[name]
    originals = {
        "model": readers._model().SerializeToString(),
        "library": readers._library(),
        "verification": readers._verification(),
    }
    if area == "arrays":
        np.savez(tmp_path / "a.npz", x=np.ones(3))
        originals[area] = (tmp_path / "a.npz").read_bytes()
    changed = change(originals[area])
    assert changed != originals[area]
    _, read = readers.AREAS[area](tmp_path)
    with pytest.raises(InputError, match=message):
        read(changed)


# Command lines.


def test_every_command_is_tried_with_every_kind_of_fault() -> None:
    cases = commands.every_case(random.Random(0))
    assert len(cases) >= 2000
    assert {case.area for case in cases} == {"files", "values", "outputs", "surroundings", "signals"}
    (named,) = (action.choices for action in build_parser()._actions if action.dest == "command")
    assert {case.argv[0] for case in cases} == set(named)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork there")
@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("import os; os.abort()", "the exit code is -6"),
        ("import sys; sys.exit('Traceback')", "the output has 'Traceback'"),
        ("import sys; sys.exit(1)", "it failed and said nothing"),
        ("import sys; sys.exit('error: no')", "the error has no fix"),
        ("import sys; sys.exit('error: no\\nfix: none')", "the error does not name 'm.onnx'"),
        ("open('mine', 'w').close()", "mine is new"),
        ("import os; os.mkdir(os.environ['TMPDIR'] + '/tmp1')", "temporary files are left: tmp1"),
        ("import subprocess; subprocess.Popen(['sleep', '60'])", "processes are left"),
    ],
)
def test_a_fault_is_found(program: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "PROGRAM", program)
    monkeypatch.setattr(forked, "GRACE", 0.3)
    (tmp_path / "valid").mkdir()
    case = forked.Case("files", (), surroundings="in a new process: ASCII", culprit="m.onnx")
    (ended,) = forked.run_all([case], tmp_path / "valid", tmp_path, jobs=1, ends=float("inf"))
    assert fault in ended.faults


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork there")
def test_an_interrupt_before_the_command_runs_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forked.SURROUNDINGS, "slow", lambda folder: time.sleep(5))
    (tmp_path / "valid").mkdir()
    case = forked.Case("signals", ("engines",), surroundings="slow", interrupt=(int(signal.SIGINT), 0.0))
    (ended,) = forked.run_all([case], tmp_path / "valid", tmp_path, jobs=1, ends=float("inf"))
    assert (ended.code, ended.faults) == (-signal.SIGINT, ())


@pytest.mark.sweep
def test_the_command() -> None:
    command = [sys.executable, "fuzz", "--seconds", "4", "--seed", "1", "--area", "values", "--area", "kills"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    tried = {line.rsplit(maxsplit=3)[0]: line.split()[-3:] for line in done.stdout.splitlines()[1:]}
    assert set(tried) == {"values", "kills", "all"}
    assert all(tried == passed and failed == "0" for tried, passed, failed in tried.values())
