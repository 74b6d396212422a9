"""The public verbs end to end: bundles that are reproducible, whole or absent, and proved."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from unmapped import forgotten, lost

import opbridge
from opbridge.bundle.bundle import read_bundle
from opbridge.errors import InputError, UnsupportedOperatorError

ENTRY = '''"""A model with an operator of its own, one of the catalog, and a dynamic dimension."""

import os

import torch
from torch import Tensor

import opbridge


@opbridge.operator("test_pipeline::mix")
def mix(x: Tensor, factor: float) -> Tensor:
    """Return x times the factor, plus 1."""
    return x * factor + 1


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 400)

    def forward(self, x):
        y = self.layer(x)
        return {"mixed": mix(y, 2.0) - mix(y, 3.0), "lengths": torch.hypot(x, x)}


def model():
    torch.manual_seed(int(os.environ.get("TEST_PIPELINE_SEED", "0")))
    return {"model": Net(), "args": (torch.randn(3, 4),), "dynamic_shapes": {"x": {0: "rows"}}}
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that holds the entry."""
    return work_in(tmp_path / "here", monkeypatch)


SOURCE = Path(opbridge.__file__).parent.parent
NUMBERS = itertools.count()


def work_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path.mkdir(parents=True)
    # An operator is declared once in a process.
    (path / "entry.py").write_text(ENTRY.replace("test_pipeline::mix", f"test_pipeline::mix{next(NUMBERS)}"))
    monkeypatch.chdir(path)
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("model.onnx", "bundle.json")}


SCRIPT = """
import torch
import opbridge

class Largest(torch.nn.Module):
    def forward(self, x):
        return torch.cummax(x, 1)

opbridge.export("entry.py:model", path="out", verify=False)
opbridge.export(Largest(), (torch.arange(6.0).reshape(2, 3),), path="loop", verify=False)
"""


@pytest.mark.slow
@pytest.mark.newest
def test_bundles_are_byte_identical_wherever_they_are_made(tmp_path: Path) -> None:
    """Two folders, two processes, two seeds of Python's hashes, and twice in one process.

    onnxscript keeps the variables of a loop in a set, whose order changes with the seed.
    """
    made = []
    for number, name in enumerate(("one", "another/deeper")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "entry.py").write_text(ENTRY)
        code = SCRIPT + (
            'opbridge.export("entry.py:model", path="out", verify=False, overwrite=True)' if number else ""
        )
        environment = {**os.environ, "PYTHONHASHSEED": str(number + 1), "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        made.append((files_of(folder / "out"), files_of(folder / "loop")))
    assert made[0] == made[1]
    assert b"Loop" in made[0][1]["model.onnx"]
    for data in made[0][0].values():
        assert str(tmp_path).encode() not in data
        assert b"entry.py:1" not in data, "source lines are in a file of their own"
    sources = json.loads((tmp_path / "one" / "out" / "sources.json").read_text())
    assert "entry.py" in json.dumps(sources)


@pytest.mark.slow
def test_what_a_bundle_holds(folder: Path) -> None:
    stages: list[str] = []
    bundle = opbridge.export("entry.py:model", path="out", progress=stages.append)
    assert bundle.verified
    assert stages[0] == "capturing"
    assert stages[-3:] == ["writing", "verifying", "verifying on onnxruntime"]
    manifest = json.loads((folder / "out" / "bundle.json").read_text())
    assert manifest["entry"] == "entry.py:model"
    assert [spec["name"] for spec in manifest["outputs"]] == ["mixed", "lengths"]
    assert manifest["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["rows", 4]}]
    assert set(manifest["dynamic"]) == {"rows"}
    rungs = {item["target"]: item["rung"] for item in manifest["operators"]}
    assert [rung for target, rung in rungs.items() if target.startswith("test_pipeline::")] == ["function"]
    assert rungs["aten::hypot"] == "decompose"
    digest = hashlib.sha256((folder / "out" / "model.onnx").read_bytes()).hexdigest()
    assert manifest["files"]["model.onnx"]["sha256"] == digest
    onnx.checker.check_model(onnx.load(folder / "out" / "model.onnx"))
    session = opbridge.load("out")
    x = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
    assert session.run({"x": x})["mixed"].shape == (5, 400)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["entry.py", "out"]


@pytest.mark.slow
def test_verify_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opbridge.export("entry.py:model", path="out", verify=False)
    assert read_bundle("out").verified is None
    assert opbridge.verify("out").passed
    assert read_bundle("out").verified is True
    assert opbridge.verify("out", reference="entry.py:model", seed=3).passed
    # The entry is found from another directory too.
    monkeypatch.chdir(folder.parent)
    assert opbridge.verify("here/out").passed
    (folder / "other.py").write_text(ENTRY.replace('"0"', '"1"').replace("test_pipeline::mix", "test_pipeline::mix_2"))
    with pytest.raises(InputError, match="The reference has other weights than the model that") as caught:
        opbridge.verify("here/out", reference=f"{folder}/other.py:model")
    assert "torch.manual_seed" in caught.value.fix
    (folder / "entry.py").rename(folder / "moved.py")
    with pytest.raises(InputError) as caught:
        opbridge.verify("here/out")
    assert "entry.py" in caught.value.message
    assert caught.value.fix


def test_a_bundle_with_its_reference_needs_no_source(folder: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    bundle = opbridge.export(
        model, (torch.randn(3, 4),), path="out", with_reference=True, dynamic_shapes={"input": {0: "rows"}}
    )
    assert bundle.verified
    assert "reference.pt2" in bundle.manifest["files"]
    assert opbridge.verify("out").passed


def test_a_bundle_without_a_reference_says_so(folder: Path) -> None:
    opbridge.export(nn.ReLU(), (torch.randn(3),), path="out", verify=False)
    with pytest.raises(InputError) as caught:
        opbridge.verify("out")
    assert "reference" in str(caught.value)


def wrong(self: Any) -> Any:
    from onnxscript import opset18 as op

    return op.Sigmoid(op.Mul(self, op.CastLike(1.001, self)))


@pytest.mark.slow
def test_a_failed_verification_still_writes_the_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opbridge.catalog.declare.spec._declared", [])
    opbridge.translation("aten::sigmoid")(wrong)
    bundle = opbridge.export(nn.Sigmoid(), (torch.randn(64),), path="out")
    assert bundle.verified is False
    assert (folder / "out" / "model.onnx").is_file()
    recorded = json.loads((folder / "out" / "verification.json").read_text())
    assert recorded["verdict"] == "failed"
    assert read_bundle("out").verified is False
    assert not opbridge.verify("out", reference=opbridge_entry(nn.Sigmoid(), torch.randn(64))).passed


def opbridge_entry(model: nn.Module, *args: Tensor) -> Any:
    from opbridge.capture.entry import Entry

    return Entry("", model, args, {}, None, None, None)


@pytest.mark.quick("write")
@pytest.mark.parametrize("fails", ["capture", "mapping", "write"])
def test_nothing_is_left_of_a_failed_export(folder: Path, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    model: Any = {"capture": lambda x: x * float(f"{x.sum()}"), "mapping": lost, "write": torch.exp}[fails]
    if fails == "write":
        monkeypatch.setattr("opbridge.bundle.model_files.save_model", no_disk)
    with pytest.raises(opbridge.OpbridgeError) as caught:
        opbridge.export(model, (torch.randn(3),), path="out")
    assert caught.value.fix
    assert sorted(path.name for path in folder.iterdir()) == ["entry.py"]


def test_all_missing_operators_are_in_one_error(folder: Path) -> None:
    def model(x: Tensor) -> Tensor:
        return lost(x) + forgotten(x)

    with pytest.raises(UnsupportedOperatorError, match=r"opbridge_tests::lost[\s\S]*opbridge_tests::forgotten"):
        opbridge.export(model, (torch.randn(3),), path="out")


def test_the_path_is_checked_before_the_work(folder: Path) -> None:
    def never(x: Tensor) -> Tensor:
        raise AssertionError("captured")

    args = (torch.randn(3),)
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("precious")
    (folder / "file").write_text("precious")
    for path, overwrite in (("foreign", False), ("foreign", True), ("file", True), ("absent/deep/out", False)):
        if path == "absent/deep/out":
            continue
        with pytest.raises(InputError) as caught:
            opbridge.export(never, args, path=path, overwrite=overwrite)
        assert path in caught.value.message
    assert (folder / "foreign" / "thesis.txt").read_text() == "precious"
    assert (folder / "file").read_text() == "precious"
    with pytest.raises(InputError):
        opbridge.export(never, args, path="file/out")


def test_overwrite(folder: Path) -> None:
    opbridge.export(nn.ReLU(), (torch.randn(3),), path="out", verify=False)
    with pytest.raises(InputError, match="out") as caught:
        opbridge.export(nn.Tanh(), (torch.randn(3),), path="out", verify=False)
    assert "overwrite" in caught.value.fix
    before = files_of(folder / "out")
    with pytest.raises(UnsupportedOperatorError):
        opbridge.export(lost, (torch.randn(3),), path="out", overwrite=True)
    assert files_of(folder / "out") == before, "a failed export does not touch the bundle that is there"
    opbridge.export(nn.Tanh(), (torch.randn(3),), path="out", verify=False, overwrite=True)
    assert files_of(folder / "out") != before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engines": ("onnxruntim",)}, "There is no engine 'onnxruntim'"),
        ({"opset": 10}, "Opset 10 can't be written: 11 is the oldest"),
        ({"ops": ("nowhere.py",)}, "there is no file or folder 'nowhere.py'"),
        ({"input_names": ["a", "b"]}, "input_names has 2 names, but the model has 1 inputs"),
    ],
)
def test_options_that_do_not_fit(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        opbridge.export(nn.ReLU(), (torch.randn(3),), path="out", **options)
    assert message in caught.value.message
    assert caught.value.fix
    assert not (folder / "out").exists()


def test_a_single_tensor_and_a_plain_function(folder: Path) -> None:
    def halves(x: Tensor) -> Tensor:
        return x / 2

    bundle = opbridge.export(halves, torch.randn(3, 4), path="out")
    assert bundle.verified
    assert [spec.name for spec in bundle.inputs] == ["x"]


@pytest.mark.slow
def test_an_exported_program_and_a_file_of_one(folder: Path) -> None:
    program = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),))
    assert opbridge.export(program, path="out").verified
    torch.export.save(program, "linear.pt2")
    assert opbridge.export("linear.pt2", path="from_file").verified
    assert files_of(folder / "out")["model.onnx"] == files_of(folder / "from_file")["model.onnx"]


@pytest.mark.slow
def test_external_data(folder: Path) -> None:
    bundle = opbridge.export("entry.py:model", path="out", external_data=True)
    assert bundle.verified
    assert "model.onnx.data" in bundle.manifest["files"]


@pytest.mark.slow
def test_threads_do_not_disturb_each_other(folder: Path) -> None:
    """Three exports of three models at once, each of which rewrites, patches torch and restores it."""
    models = [nn.Sequential(nn.Linear(4, n), nn.ReLU()).train() for n in (2, 3, 4)]
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            bundle = opbridge.export(
                models[index], (torch.randn(3, 4),), path=f"out{index}", dynamic_shapes=({0: "rows"},), verify=False
            )
            assert bundle.outputs[0].shape == ("rows", index + 2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(p.requires_grad for model in models for p in model.parameters())
    assert all(part.training for model in models for part in model.modules())
    assert not torch.fx.experimental._config.backed_size_oblivious
    alone = opbridge.export(models[0], (torch.randn(3, 4),), path="alone", dynamic_shapes=({0: "rows"},), verify=False)
    assert files_of(alone.path)["model.onnx"] == files_of(folder / "out0")["model.onnx"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"opset": 10}, "Opset 10 can't be written: 11 is the oldest"),
        ({"opset": 99}, r"Opset 99 is newer than \d+, the newest that onnxruntime"),
        ({"ir_version": 3}, "ONNX IR version 3 can't be written"),
    ],
)
def test_versions_that_can_not_be_written(tmp_path: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        opbridge.export(nn.ReLU(), (torch.ones(2),), path=tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()
