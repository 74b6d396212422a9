"""``opbridge run-script``: what a script sees, how it ends, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("torch")

from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.legacy.run_script import run_script
from opbridge.legacy.switch import is_on

EXPORT = """
import sys, torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return g.op("mylib::Twice", x)

class Model(torch.nn.Module):
    def forward(self, x):
        return Twice.apply(x)

torch.onnx.export(Model(), torch.rand(2), sys.argv[1])
"""


def write(folder: Path, text: str) -> str:
    file = folder / "old.py"
    file.write_text(text)
    return str(file)


def test_a_script_sees_what_python_would_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = write(
        tmp_path,
        "import sys, json, beside, __main__\n"
        "def f(): return __name__\n"
        "print(json.dumps([sys.argv[1:], __name__, __file__, sys.path[0], beside.value, __main__.f()]))\n",
    )
    before = (sys.argv, list(sys.path), sys.modules["__main__"])
    assert main(["run-script", "-q", script, "--size", "3", "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert json.loads(printed[0]) == [
        ["--size", "3", "--json"], "__main__", script, str(tmp_path), 7, "__main__",
    ]  # fmt: skip
    assert printed[1] == "Nothing was bridged: the script does not use any old declaration."
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    assert not is_on()


def test_what_was_bridged_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, EXPORT)
    report = tmp_path / "report.json"
    assert main(["run-script", "-q", "--report", str(report), script, str(tmp_path / "a.onnx")]) == 0
    (item,) = json.loads(report.read_text())["bridged"]
    assert (item["kind"], item["name"], item["count"]) == ("autograd.Function", "Twice", 1)
    assert "old declaration" not in capsys.readouterr().out
    assert main(["run-script", "-q", script, str(tmp_path / "b.onnx")]) == 0
    assert "1 old declaration bridged" in capsys.readouterr().out
    assert (tmp_path / "b.onnx").exists()


def test_the_report_is_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    script = write(tmp_path, "import os\nos.chdir('elsewhere')\n")
    assert main(["run-script", "-q", "--report", "report.json", script]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 0
    script = write(tmp_path, "print('it ran')\n")
    assert main(["run-script", "-q", "--report", "none/report.json", script]) == 1
    printed = capsys.readouterr()
    assert "it ran" not in printed.out
    assert printed.err.startswith("error: run-script: none/report.json can't be written: the folder does not exist.\n")


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(5)", 5, ""),
        ("raise SystemExit('it is too late')", 1, "it is too late\n"),
    ],
)
def test_exit_codes(ending: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run-script", "-q", write(tmp_path, f"import sys\n{ending}\n")]) == code
    assert capsys.readouterr().err.startswith(said)


def test_an_error_of_the_script_has_the_scripts_lines_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "def f():\n    return 1 / 0\n\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    raise KeyError(3) from e\n"
    script = write(tmp_path, text)
    assert main(["run-script", "-q", script]) == 1
    lines = capsys.readouterr().err.splitlines()
    files = [line.split('"')[1] for line in lines if line.startswith("  File ")]
    assert files == [script, script, script]
    assert lines[-1] == "KeyError: 3"
    assert not is_on()


def test_our_error_is_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = write(tmp_path, "from opbridge.errors import InputError\nraise InputError('no good', fix='do better.')\n")
    assert main(["run-script", "-q", script]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: no good\nfix: do better.")
    assert "Traceback" not in error


def test_what_is_no_script_is_refused(tmp_path: Path) -> None:
    script = write(tmp_path, "def f(:\n")
    with pytest.raises(InputError, match=r"old\.py:1 is not valid Python"):
        run_script(script)
    with pytest.raises(InputError, match="can't be read: No such file") as error:
        run_script(tmp_path / "olt.py")
    assert error.value.fix == f"pass {(tmp_path / 'old.py').as_posix()}."


def test_a_custom_node_without_a_body_is_named_with_the_command_that_gives_it_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run-script", "-q", write(tmp_path, EXPORT), "m.onnx"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "m.onnx: no engine has a kernel for mylib::Twice." in printed
    command = "opbridge attach m.onnx --ops ops.py -o m_with_bodies.onnx"
    assert command in printed
    Path("ops.py").write_text(
        "import opbridge, torch\n\n\n@opbridge.body_for('mylib::Twice')\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n    return 2 * x\n"
    )
    assert main([*command.split()[1:], "-q"]) == 0
    session = onnxruntime.InferenceSession("m_with_bodies.onnx")
    assert session.run(None, {"x": np.array([1, 2], np.float32)})[0].tolist() == [2, 4]


@pytest.mark.sweep
def test_a_deprecated_torch_jit_is_no_news(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch\ntorch.jit.trace(torch.nn.ReLU(), torch.ones(2))\nprint('traced')\n")
    command = [sys.executable, "-m", "opbridge", "run-script", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "traced" in done.stdout
    assert "deprecated" not in done.stderr
