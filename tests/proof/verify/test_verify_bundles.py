"""The modes of verification on bundles, by the command line and in Python: of PyTorch models and of ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from one_node import save

import opbridge
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.destination import check_destination
from opbridge.cli import main
from opbridge.engines.onnxruntime.session import OnnxRuntimeSession
from opbridge.errors import InputError
from opbridge.proof.verify.verification import Verification

pytestmark = pytest.mark.newest

MODEL = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), {scale}))

    def forward(self, x):
        return x * self.scale + (x > 2.5).to(x.dtype) * {fault}


def model():
    return {{"model": Net(), "args": (torch.rand(6, 4) * 4,), "dynamic_shapes": {{"x": {{0: "rows"}}}}}}
"""
ONNX = """<ir_version: 8, opset_import: ["": 17]>
net (float[n, 4] x) => (float[n, 4] y, float[n] m) {
    y = Exp(x)
    m = ReduceMax<axes = [1], keepdims = 0>(x)
}"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, with an entry and one that computes something else with the same weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL.format(scale=1.5, fault=0))
    (tmp_path / "other.py").write_text(MODEL.format(scale=1.5, fault=3))
    return tmp_path


@pytest.mark.slow
def test_a_small_failing_input_is_kept_and_fails_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "net.py:model", "-o", "b", "-q", "--edge-sizes"]) == 0
    assert len(read_bundle("b").verification["cases"]) == 5
    against = ["--reference", "other.py:model", "--no-bisect"]
    assert main(["verify", "b", *against, "--shrink", "600", "-q"]) == 1
    assert "also fails on the small input in failing_input.npz" in capfd.readouterr().out
    with np.load("b/failing_input.npz") as arrays:
        small = arrays["x"]
    assert small.shape[0] in (1, 2)
    assert np.count_nonzero(small) == 1
    assert small.max() in (3, 4)
    assert main(["verify", "b", *against, "--inputs", "b/failing_input.npz", "-q"]) == 1
    assert "failing_input.npz" in read_bundle("b").verification["cases"][0]["name"]
    check_destination("b", overwrite=True)  # The file is the bundle's own, and does not stand in the way.


@pytest.mark.slow
def test_every_file_of_a_folder_is_a_case(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bundle = opbridge.export("net.py:model", path="b", verify=False)
    (folder / "cases").mkdir()
    for rows in (2, 5):
        np.savez(folder / f"cases/rows{rows}.npz", x=np.ones((rows, 4), np.float32))
    assert main(["verify", "b", "-q", "--inputs", "cases"]) == 0
    assert [case["name"] for case in bundle.verification["cases"]] == ["rows2.npz", "rows5.npz"]
    (folder / "empty").mkdir()
    assert main(["verify", "b", "-q", "--inputs", "empty"]) == 1
    assert "The folder empty contains no .npz files." in capfd.readouterr().err
    named = {"mine": {"x": np.ones((3, 4), np.float32)}}
    assert [case.name for case in opbridge.verify("b", inputs=named).cases] == ["mine"]
    with pytest.raises(InputError, match="must be a list of them, one per case"):
        opbridge.verify("b", inputs=named["mine"])


@pytest.mark.slow
def test_special_values_are_told_and_may_be_required(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "net.py:model", "-o", "b", "-q", "--special-values", "--nan", "exact"]) == 0
    assert "special values, NaN: as PyTorch" in capfd.readouterr().out
    found = opbridge.verify("b", special_values="require")
    assert found.passed
    assert {item.values for item in found.special_values} == {"NaN", "infinity", "-0", "subnormal", "large", "extremes"}


def test_a_model_of_this_process_may_be_the_reference(tmp_path: Path) -> None:
    model, args = torch.nn.Linear(3, 2), (torch.rand(4, 3),)
    bundle = opbridge.export(model, args, path=tmp_path / "b", verify=False)
    assert opbridge.verify(bundle.path, reference=(model, args)).passed
    with pytest.raises(InputError, match="A Linear was passed in the place of a model with its inputs"):
        opbridge.verify(bundle.path, reference=model)


def test_a_size_below_two_that_the_program_does_not_take_is_a_note(tmp_path: Path) -> None:
    """Without a min, a dimension is declared from 2 on."""

    class SecondRow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[1 if x.shape[0] > 1 else 0] * 2

    shapes = {"x": {0: torch.export.Dim("n"), 1: torch.export.Dim("m")}}
    bundle = opbridge.export(SecondRow(), (torch.randn(2, 5),), path=tmp_path / "bundle", dynamic_shapes=shapes)
    assert bundle.verification is not None
    assert bundle.verification["verdict"] == "passed"
    notes = [note for case in bundle.verification["cases"] for note in case["notes"]]
    assert any(" n=1, a size below 2, the captured graph fails" in note for note in notes)


def test_without_hypothesis_the_error_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs Hypothesis, which is not installed") as caught:
        opbridge.verify("b", shrink=3)
    assert caught.value.fix == "pip install hypothesis"


def faulty_engine(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Mapping[str, np.ndarray], Any], None]) -> None:
    """ONNX Runtime in this process, with a fault, where a bundle of an ONNX model is verified."""

    class Session(OnnxRuntimeSession):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            results = {name: np.array(array) for name, array in super().run(feeds).items()}
            fault(feeds, results)
            return results

        def close(self) -> None:
            pass

    def load(*args: Any, **_: Any) -> Session:
        import onnxruntime

        return Session(onnxruntime.InferenceSession(str(args[1]), providers=["CPUExecutionProvider"]))

    monkeypatch.setattr("opbridge.verbs.references.IsolatedSession", load)


def of_onnx(folder: Path, **modes: Any) -> Verification:
    return opbridge.verify("b", reference=str(folder / "net.onnx"), bisect=False, **modes)


@pytest.mark.sweep
def test_an_onnx_model_has_the_same_modes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(onnx.parser.parse_model(ONNX), folder / "net.onnx")
    opbridge.export(str(folder / "net.onnx"), path="b", verify=False)

    def fault(feeds: Mapping[str, np.ndarray], results: Any) -> None:
        if not feeds["x"].size:
            results["m"] = np.ones(1, np.float32)
        results["y"][np.isnan(results["y"]) | (results["m"].max(initial=0) > 8)] = 0

    faulty_engine(monkeypatch, fault)
    assert of_onnx(folder).passed
    edges = of_onnx(folder, edge_sizes=True, shrink=600.0)
    assert {case.name: case.verdict for case in edges.cases if case.verdict != "passed"} == {"size n=0": "failed"}
    found = of_onnx(folder, inputs=[{"x": np.array([[3, 1, 9, 2]] * 5, np.float32)}], shrink=600.0)
    assert [case.failing_input for case in found.cases] == ["failing_input.npz"]
    with np.load("b/failing_input.npz") as arrays:
        assert arrays["x"].shape == (1, 4)
        assert sorted(arrays["x"][0]) == [0, 0, 0, 9]
        assert not of_onnx(folder, inputs=[dict(arrays)]).passed
    special = of_onnx(folder, special_values=True)
    assert special.passed
    differences = {item.values: [(d.torch, d.engine) for d in item.differences] for item in special.special_values}
    assert ("NaN", "0") in differences["NaN"]
    required = of_onnx(folder, special_values="require")
    assert (required.verdict, required.error) == (
        "failed",
        "special values are required to give the same results as in PyTorch, and some do not",
    )
