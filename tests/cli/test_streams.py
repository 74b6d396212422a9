"""The command line where its streams, files or limits fail: one clear line, and exit code 0, 1, 2 or 130."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from command_lines import Ran, small_model
from one_node import make_model, save
from onnx import helper

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(sys.platform != "linux", reason="there are no such devices and limits there"),
]

FAILS = "error: the result can't be printed: "
RUN = "run m.onnx --input x=x.npy -o y.npz -q"
STREAMS = {
    f"{RUN} >&-": (1, f"{FAILS}stdout is closed.\n"),
    f"{RUN} --json > /dev/full": (1, f"{FAILS}No space left on device.\n"),
    f"{RUN} 2> /dev/full > /dev/null": (0, ""),
    "view m.onnx --no-browser >&-": (1, f"{FAILS}stdout is closed.\n"),
    "view m.onnx --no-browser 1< /dev/null": (1, f"{FAILS}Bad file descriptor.\nfix: redirect stdout"),
    "diagnose nope.py:x >&- 2>/dev/full": (1, ""),
    "diagnose nope.py:x --json >&- 2>&-": (1, ""),
    "diagnose nope.py:x --no-such-option 2> /dev/full": (2, ""),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    small_model(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    return tmp_path


@pytest.mark.quick("diagnose", ">&-")
@pytest.mark.parametrize("line", STREAMS)
def test_a_stream_that_can_not_be_written(files: Path, line: str) -> None:
    command = ["sh", "-c", f'"$0" -m opbridge {line}', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    code, printed = STREAMS[line]
    assert done.returncode == code
    assert done.stderr.startswith(printed)
    assert "Traceback" not in done.stderr


def test_an_interrupt_while_it_starts() -> None:
    command = [sys.executable, "-c", "from opbridge.__main__ import main; print(flush=True); exit(main())", "ops"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.03)  # It runs for about 0.2 seconds.
        process.send_signal(2)
        _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed.splitlines()[-1:]) == (130, ["interrupted"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "m.onnx", "--input", "x=pipe", "-o", "y.npz"],
            "Can't read arrays from pipe: it is not a regular file",
        ),
        (["run", "m.onnx", "--input", "x=x.npy", "-o", "pipe"], "pipe is a pipe or a device"),
        (["run", "pipe", "--input", "x=x.npy", "-o", "y.npz"], "is a pipe or a device, not a model file"),
        (["diagnose", "pipe.onnx"], "is not a regular file"),
        (["run-script", "--report", "pipe", "x.py"], "run-script: pipe can't be written: it is a pipe"),
        (["run-script", "pipe"], "run-script: pipe can't be read: pipe is not a regular file"),
        (["migrate", "pipe"], "pipe can't be read: pipe is not a regular file"),
        (["conformance", "report", "pipe", "-o", "page"], "'pipe' can't be read: pipe is not a regular file"),
        (["conformance", "report", "x.npy", "-o", "page"], "Line 1 of 'x.npy' is not a result"),
    ],
)
def test_what_is_no_file_of_this_kind_is_not_waited_for(
    files: Path, arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("pipe")
    os.mkfifo("pipe.onnx")
    ran = Ran(capfd, *arguments)
    assert ran.code == 1
    assert message in ran.err


def test_a_name_does_not_control_the_terminal(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "y\x1b]0;owned\x07\u202e\u200b"
    spec = ("FLOAT", [2])
    node = helper.make_node("Relu", ["x"], [name])
    save(make_model([node], {"x": spec}, {name: spec}), files / "m.onnx")
    np.save("x.npy", np.ones(2, np.float32))
    assert r"y\x1b]0;owned\x07\u202e\u200b" in Ran(capfd, "run", "m.onnx", "--input", "x=x.npy", "-o", "y.npz").out
    node = helper.make_node("Relu", [name], ["y"])
    save(make_model([node], {name: spec}, {"y": spec}), files / "m.onnx")
    error = Ran(capfd, "run", "m.onnx", "--input", "x=x.npy", "-o", "y.npz").err
    assert not set("\x1b\u202e\u200b") & set(error)
    assert r"\x1b" in error


def test_a_folder_of_logs_does_not_control_the_terminal(
    files: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(files / "\x1b[31m"))
    (files / "fails.py").write_text("raise ValueError")
    error = Ran(capfd, "diagnose", "fails.py:model").err
    assert r"\x1b[31m" in error.rpartition("log: ")[2]
    assert "\x1b" not in error


def test_a_name_of_several_lines_gives_no_other_fix(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spec = ("FLOAT", [2])
    node = helper.make_node("No", ["x"], ["y"], name="n\nerror: no\nfix: evil")
    save(make_model([node], {"x": spec}, {"y": spec}), files / "m.onnx")
    lines = Ran(capfd, "convert-opset", "m.onnx", "--opset", "19", "-o", "out.onnx").err.splitlines()
    assert [line[:5] for line in lines if not line.startswith(" ")].count("fix: ") == 1
    assert any(line.startswith("  fix: evil (ai.onnx::No)") for line in lines)


def test_arrays_that_do_not_fit_into_the_memory(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("bomb.npz", "w") as archive:
        archive.write("x.npy")
        archive.infolist()[0].file_size = 1 << 60
    ran = Ran(capfd, "run", "m.onnx", "--input", "bomb.npz", "-o", "y.npz")
    assert "its arrays take 1073741824 GiB, more than this machine has memory" in ran.err
    with zipfile.ZipFile("twice.npz", "w") as archive:
        archive.write("x.npy")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.write("x.npy")
    assert "two arrays of one name" in Ran(capfd, "run", "m.onnx", "--input", "twice.npz", "-o", "y.npz").err


def test_the_current_folder_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    line = f'cd {tmp_path}/gone && rmdir ../gone && "$0" -m opbridge verify b'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: The current folder was deleted.\nfix: change to")


def test_too_few_open_files(files: Path) -> None:
    line = f'ulimit -n 10; "$0" -m opbridge {RUN}'
    done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "The system refused what the command needs: [Errno 24] Too many open files" in done.stderr
    assert "ulimit" in done.stderr


def test_a_terminal_of_one_column() -> None:
    command = [sys.executable, "-m", "opbridge", "--help"]
    done = subprocess.run(command, env={**os.environ, "COLUMNS": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes: 0 success" in done.stdout
