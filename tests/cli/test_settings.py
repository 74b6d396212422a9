"""``[tool.opbridge]`` in pyproject.toml: defaults of the command line, and what is wrong in the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opbridge.cli import main
from opbridge.cli._settings import read_settings

pytestmark = pytest.mark.newest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, whose subfolder is the current folder."""
    (tmp_path / "project" / "inner").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.opbridge]\nopset = 11\n")  # Another project is nearer.
    monkeypatch.chdir(tmp_path / "project" / "inner")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "project"


def written(project: Path, table: str) -> Path:
    file = project / "pyproject.toml"
    file.write_text(f"[project]\nname = 'mine'\n{table}")
    return file


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        ("", {}),
        ("[tool.other]\nengine = 3\n", {}),
        ("[tool.opbridge]\n", {}),
        ('[tool.opbridge]\nengine = "openvino"\n', {"engine": "openvino", "engines": ("openvino",)}),
        ('[tool.opbridge]\nengine = ["tvm", "ncnn"]\n', {"engine": "tvm", "engines": ("tvm", "ncnn")}),
        ("[tool.opbridge]\nopset = 17\n", {"opset": 17}),
        ('[tool.opbridge]\nops = "mine"\n', {"ops": ["mine"]}),
        ('[tool.opbridge]\nops = ["mine", "more/yours.py"]\n', {"ops": ["mine", "more/yours.py"]}),
    ],
)
def test_the_nearest_table_is_read(table: str, settings: dict[str, Any], project: Path) -> None:
    written(project, table)
    if "ops" in settings:
        settings = {"ops": [str(project / path) for path in settings["ops"]]}
    assert read_settings(Path.cwd()) == settings


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    if any((folder / "pyproject.toml").exists() for folder in tmp_path.parents):
        pytest.fail("a folder above the temporary one has a pyproject.toml")
    assert read_settings(tmp_path) == {}


@pytest.mark.parametrize(
    ("table", "message", "fix"),
    [
        ("[tool.opbridge]\nengines = 'tvm'\n", "has the unknown key 'engines'", "the keys are engine, ops, opset."),
        (
            "[tool.opbridge]\nopset = '17'\n",
            "must be an integer or \"lowest\", not '17'",
            "write opset = 18.",
        ),
        ("[tool.opbridge]\nopset = true\n", 'must be an integer or "lowest", not True', "write opset = 18."),
        (
            "[tool.opbridge]\nengine = 3\n",
            "engine in [tool.opbridge] must be a name",
            "write engine =",
        ),
        ("[tool.opbridge]\nengine = []\n", "must be a name or a list of names, not []", "write engine ="),
        (
            "[tool.opbridge]\nops = ['a', 2]\n",
            "ops in [tool.opbridge] must be a path",
            "write ops =",
        ),
        ("[tool]\nopbridge = 3\n", "tool.opbridge is not a table", "write [tool.opbridge]"),
        ("[tool.opbridge\n", "is not valid TOML", "correct the file."),
    ],
)
def test_what_is_wrong_names_the_file(
    table: str, message: str, fix: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(project, table)
    assert main(["diagnose", "net.py:model"]) == 1
    printed = capfd.readouterr().err
    assert str(file) in printed
    assert message in printed
    assert f"fix: {fix}" in printed
    assert main(["diagnose", "net.py:model", "--json"]) == 1
    assert str(file) in json.loads(capfd.readouterr().out)["message"]


def given(
    monkeypatch: pytest.MonkeyPatch, command: str, *argv: str, capfd: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """What the command passes on to its function."""
    calls: list[dict[str, Any]] = []

    def function(*args: object, **kwargs: Any) -> None:
        calls.append(kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(f"opbridge.cli.{command}.{command}", function)
    assert main([command, *argv]) == 130
    capfd.readouterr()
    return calls[0]


def test_the_command_line_wins(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("net.py").write_text("def model():\n    import torch\n    return torch.nn.ReLU(), (torch.ones(2),)\n")
    entry = "net.py:model"
    names = ("engines", "opset", "ops")
    plain = given(monkeypatch, "diagnose", entry, "--opset", "20", capfd=capfd)
    assert [plain[name] for name in names] == [("onnxruntime",), 20, ()]
    written(project, '[tool.opbridge]\nengine = ["openvino", "tvm"]\nopset = 17\nops = ["mine"]\n')
    set_up = given(monkeypatch, "diagnose", entry, capfd=capfd)
    assert [set_up[name] for name in names] == [("openvino", "tvm"), 17, (str(project / "mine"),)]
    options = ("--engine", "onnxruntime", "--opset", "20", "--ops", "a", "--ops", "b")
    told = given(monkeypatch, "diagnose", entry, *options, capfd=capfd)
    assert [told[name] for name in names] == [("onnxruntime",), 20, ("a", "b")]
    # A bundle has its own engines, and of a bundle no code of the current folder is run.
    verified = given(monkeypatch, "verify", "bundle", capfd=capfd)
    assert (verified["engines"], verified["ops"]) == (None, ())
