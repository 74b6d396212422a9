"""Sweeps: every end of a task is a row, rows are written once, a stopped sweep goes on, and the collections open."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from places import EXAMPLES, SUPPORT

from opbridge.cli import main
from opbridge.errors import CaptureError, EngineCrashError, InputError, UnsupportedOperatorError
from opbridge.sweep.causes import general, of_error
from opbridge.sweep.rows import Row, RowFile, read_rows
from opbridge.sweep.run import run_sweep
from opbridge.sweep.zoo import matching, open_zoo
from opbridge.sweep.zoos.transformers import _SMALL, _small_config

pytestmark = pytest.mark.newest

ZOO = str(SUPPORT / "sweep_zoo.py")


def row(model: str, status: str = "pass", **fields: Any) -> Row:
    return Row("zoo", model, fields.pop("exporter", "opbridge"), "onnxruntime", status, **fields)


# Rows


def test_an_incomplete_last_line_is_cut_off_and_its_row_written_anew(tmp_path: Path) -> None:
    with RowFile(tmp_path).opened() as file:
        file.append(row("a"))
        file.append(row("b", "mismatch", tolerance_used=float("inf")))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-7])
    assert [found.model for found in read_rows(tmp_path)] == ["a"]
    with RowFile(tmp_path).opened() as file:
        assert [key[1] for key in file.rows] == ["a"]
        file.append(row("b", "mismatch", tolerance_used=float("inf")))
    assert file.path.read_bytes() == whole
    assert read_rows(tmp_path)[1].tolerance_used == float("inf")


def test_a_damaged_line_and_a_second_sweep_are_refused(tmp_path: Path) -> None:
    file = RowFile(tmp_path)
    with file.opened(), pytest.raises(InputError, match="Another sweep is writing"), RowFile(tmp_path).opened():
        pass
    file.path.write_text('{"zoo": 1}\n{}\n')
    with pytest.raises(InputError, match=r"Line 1 of .* is not a row of a sweep"):
        read_rows(tmp_path)
    with pytest.raises(InputError, match="There are no results"):
        read_rows(tmp_path / "other")


# Causes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("size 3 at /x/site-packages/net.py:12 is odd", "size 14 at /y/site-packages/other.py:7 is odd"),
        ("the input 'a' has 1.5e-3 (net.py:3, in forward)", "the input 'b' has 2 (my.py:4)"),
    ],
)
def test_a_cause_is_the_same_text_for_all_models(one: str, other: str) -> None:
    assert general(one) == general(other)
    assert general(one) != general("something else")


def test_errors_have_a_status_and_causes() -> None:
    unmapped = UnsupportedOperatorError("two", fix="none", targets=["aten::a", "aten::b"])
    assert of_error(unmapped) == (
        "translate",
        ("no mapping of aten::a that the engine takes", "no mapping of aten::b that the engine takes"),
    )
    assert of_error(CaptureError("a loop at 3", fix="")) == ("capture", ("a loop at N",))
    assert of_error(EngineCrashError("it hung", fix="", cause="out of time"))[0] == "out of time"
    assert of_error(EngineCrashError("it crashed", fix="", cause="killed"))[0] == "crashed"
    assert of_error(KeyError("x"))[0] == "error"


# Collections


def test_collections_are_files_and_folders(tmp_path: Path) -> None:
    zoo = open_zoo(ZOO)
    assert (zoo.name, zoo.models[:2]) == ("sweep_zoo.py", ("good", "unmapped"))
    assert matching(zoo.models, ["slow[0-1]", "good"]) == ["good", "slow0", "slow1"]
    assert "branch" in open_zoo(str(EXAMPLES)).models
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("def model(:\n")
    (tmp_path / "many.py").write_text("import torch\nentries = {'a': lambda: (torch.nn.ReLU(), (torch.rand(2),))}\n")
    zoo = open_zoo(str(tmp_path))
    assert zoo.models == ("many/a", "net")
    assert zoo.load("net") == tmp_path / "net.onnx"
    assert zoo.load("many/a").args[0].shape == (2,)


def test_what_is_no_collection_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    for text, message in [
        ("torchvison", "There is no collection of models 'torchvison'"),
        (str(tmp_path / "empty.py"), "empty.py has no dict `entries`"),
        (str(tmp_path), "has no models"),
    ]:
        with pytest.raises(InputError, match=message):
            open_zoo(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "ssdlite320_mobilenet_v3_large", "raft_small", "lraspp_mobilenet_v3_large"]
)
def test_models_of_torchvision_run_on_their_inputs(name: str) -> None:
    pytest.importorskip("torchvision")
    zoo = open_zoo("torchvision")
    assert len(zoo.models) > 100
    entry = zoo.load(name)
    entry.model.eval()(*entry.args)


# The driver, with tasks that are not run


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that ran; "stop" in the list makes the sweep stop before the next one."""
    ran: list[str] = []

    def run(requests: Sequence[Mapping[str, Any]], jobs: int, begin: Callable[..., None]) -> Iterator[dict[str, Any]]:
        for request in requests:
            begin(request)
            if len(ran) == 2:
                raise KeyboardInterrupt
            ran.append(request["model"])
            status = "capture" if request["model"] == "unmapped" else "pass"
            yield row(request["model"], status, versions={"torch": "1.0"}).to_dict() | {"zoo": request["zoo"]}

    monkeypatch.setattr("opbridge.sweep.run.run_locally", run)
    monkeypatch.setattr("importlib.metadata.version", lambda package: "1.0")
    return ran


def test_a_stopped_sweep_goes_on(tmp_path: Path, tasks: list[str]) -> None:
    patterns = ["good", "unmapped", "raises"]
    with pytest.raises(KeyboardInterrupt):
        run_sweep([ZOO], tmp_path, patterns=patterns)
    assert tasks == ["good", "unmapped"]
    tasks.clear()
    shown: list[str] = []
    found = run_sweep([ZOO], tmp_path, patterns=patterns, progress=shown.append)
    assert tasks == ["raises"]
    assert shown == ["sweeping: 2 of 3, running: raises", "sweeping: 3 of 3, 1 pass"]
    assert [one.model for one in found.rows] == patterns
    assert (found.new, found.passed, found.counts) == (1, False, {"opbridge on onnxruntime": {"pass": 2, "capture": 1}})
    tasks.clear()
    assert run_sweep([ZOO], tmp_path, patterns=patterns, again=True).new == 1
    assert tasks == ["unmapped"]


def test_rows_of_other_versions_are_refused(tmp_path: Path, tasks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run_sweep([ZOO], tmp_path, patterns=["good"])
    monkeypatch.setattr("importlib.metadata.version", lambda package: "2.0")
    with pytest.raises(InputError, match=r"has rows of torch 1.0, and 2.0 is installed here"):
        run_sweep([ZOO], tmp_path, patterns=["raises"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exporters": ["onnx"]}, "There is no exporter 'onnx'"),
        ({"patterns": ["nothing*"]}, "No model matches"),
        ({"jobs": 0}, "jobs=0 is below 1"),
        ({"engines": ["onxruntime"]}, "onxruntime"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_sweep([ZOO], tmp_path, **options)


def test_ray_is_named_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="Ray is not installed here"):
        run_sweep([ZOO], tmp_path, patterns=["good"], ray="local")


# Real tasks, each in a process of its own


@pytest.mark.sweep
def test_every_end_of_a_task_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["good", "unmapped", "raises", "hungry", "crashes"]
    argv = ["sweep", ZOO, "-o", str(tmp_path), "--jobs", "2", "--memory", "6GiB", "--json"]
    assert main([*argv, "--filter", *names]) == 1
    data = json.loads(capsys.readouterr().out)
    assert main([*argv, "--exporter", "torch", "--filter", "good", "fixed"]) == 1
    capsys.readouterr()
    found = {(one.model, one.exporter): one for one in read_rows(tmp_path)}
    assert {key: one.status for key, one in found.items()} == {
        ("good", "opbridge"): "pass",
        ("unmapped", "opbridge"): "translate",
        ("raises", "opbridge"): "eager",
        ("hungry", "opbridge"): "out of memory",
        ("crashes", "opbridge"): "crashed",
        ("good", "torch"): "pass",
        ("fixed", "torch"): "capture",
    }
    good = found["good", "opbridge"]
    assert good.cases >= 2
    assert good.run_seconds
    assert good.memory
    assert good.weights == 4 * (4 * 3 + 3)
    assert set(good.seconds) == {"build", "export", "verify", "all"}
    assert good.versions["torch"]
    assert found["good", "torch"].run_seconds
    assert found["unmapped", "opbridge"].causes == ("no mapping of opbridge_tests::lost.default that the engine takes",)
    assert found["raises", "opbridge"].causes == ("ValueError: this model can't run at N places",)
    crash = found["crashes", "opbridge"]
    assert (crash.signal, crash.stage) == ("SIGSEGV", "building the model")
    assert "Segmentation fault" in crash.log
    assert data["counts"]["opbridge on onnxruntime"]["pass"] == 1
    assert main(["sweep", "report", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {cause["status"] for cause in report["causes"]} == {"translate", "out of memory", "crashed", "capture"}
    assert "opbridge_tests::lost" in Path(report["page"]).read_text()


@pytest.mark.sweep
def test_a_hang_ends_at_its_limit(tmp_path: Path) -> None:
    found = run_sweep([ZOO], tmp_path, patterns=["hangs"], timeout=20)
    (hang,) = found.rows
    assert (hang.status, hang.stage) == ("out of time", "building the model")
    assert hang.seconds["all"] < 60


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "opbridge", "sweep", ZOO, "--filter", "slow[0-1]", "--jobs", "1"]
    process = subprocess.Popen([*command, "-o", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "rows.jsonl").exists() or len(read_rows(tmp_path)) < 1:
        time.sleep(0.2)
        assert process.poll() is None
    children = _children(process.pid)
    assert children
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {one.model: one for one in read_rows(tmp_path)}
    found = run_sweep([ZOO], tmp_path, patterns=["slow[0-1]"], jobs=1)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["model"] for line in lines) == [f"slow{number}" for number in range(2)]
    assert found.new == 2 - len(before)
    assert found.passed
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text()
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


@pytest.mark.sweep
def test_the_operators_are_a_collection(tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    found = run_sweep(["operators"], tmp_path, patterns=["hypot", "jiterator_unary"], jobs=1)
    assert {one.model: one.status for one in found.rows} == {"hypot": "pass", "jiterator_unary": "not applicable"}
    assert found.passed


class _Config:
    """A configuration as transformers has them."""

    def __init__(self, **own: Any) -> None:
        vars(self).update({"backbone": None, "num_hidden_layers": 12, "hidden_size": 768, "layer_types": [], **own})

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("allow_")}

    def to_diff_dict(self) -> dict[str, Any]:
        return {**self.to_dict(), "model_type": "own"}


def test_a_small_configuration_keeps_what_its_parts_were_given_and_two_kinds_of_layers() -> None:
    types = ["window"] * 5 + ["full"] + ["window"] * 6
    part = _Config(backbone="resnet50", layer_types=types)
    small = _small_config(_Config(vision_config=part, layer_types=["full"] * 12), _SMALL)
    assert (small.hidden_size, small.num_hidden_layers, small.layer_types) == (32, 2, ["full", "full"])
    assert (small.vision_config.backbone, small.vision_config.layer_types) == ("resnet50", ["window", "full"])
