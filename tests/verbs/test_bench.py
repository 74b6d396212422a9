"""``bench``: what it measures, of which runs, and what it says when something can't be measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from command_lines import Ran, small_model
from places import TUTORIAL
from strangers import of_a_stranger

import opbridge
from opbridge.engines.process.measuring import measured
from opbridge.verbs.bench import Benchmark

ENTRY = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x) @ x.T

def model():
    return {"model": Net(), "args": (torch.randn(3, 4),), "dynamic_shapes": {"x": {0: "n"}}}
"""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of a small PyTorch model, of a user with a key of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "net.py").write_text(ENTRY)
    opbridge.export(f"{tmp_path / 'net.py'}:model", path=tmp_path / "net", verify=False)
    return tmp_path / "net"


def test_runs_are_timed_one_by_one() -> None:
    found = measured(lambda: time.sleep(0.02), 0.05)
    assert len(found["seconds"]) in (2, 3)
    assert all(seconds >= 0.02 for seconds in found["seconds"])
    assert len(measured(lambda: None, 0.0)["seconds"]) == 1


def test_the_peak_of_memory_is_that_of_the_process_itself() -> None:
    """Not what this process, with torch, held when it started that one."""
    program = """
from opbridge.engines.process.measuring import measured
small = measured(lambda: None, 0)["peak_memory"]
large = measured(lambda: bytearray(1 << 28).count(1), 0)["peak_memory"]
print(small, large)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    small, large = map(int, ran.stdout.split())
    assert small < 100 << 20
    assert 1 << 28 <= large < (1 << 28) + small + (50 << 20)


@pytest.mark.slow
def test_an_engine_and_pytorch_side_by_side(bundle: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = bundle.parent / "inputs.npz"
    np.savez(inputs, x=np.ones((200, 4), np.float32))
    threads = torch.get_num_threads()
    ran = Ran(capfd, "bench", bundle, "--seconds", 0.05, "--threads", 1, "--input", inputs, "-q")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "inputs: x float32[200, 4]"
    assert lines[1].split("  ")[-1] == "median / PyTorch"
    assert [line.split()[0] for line in lines[3:5]] == ["PyTorch", "onnxruntime"]
    assert torch.get_num_threads() == threads, "the module runs in another process"
    found = Benchmark.from_dict(json.loads((bundle / "benchmark.json").read_text()))
    torch_, engine = found.measurements
    assert (torch_.label, torch_.threads, engine.label, engine.threads) == ("PyTorch", 1, "onnxruntime", 1)
    assert [spec.shape for spec in found.inputs] == [(200, 4)]
    assert torch_.ratio == 1
    assert engine.ratio == engine.median / torch_.median
    for row in found.measurements:
        assert row.runs >= 5
        assert 0 < row.median <= row.p90 <= row.p99
        assert 1 / row.throughput == pytest.approx(row.median, rel=10)
    # PyTorch alone takes more memory than the whole process of the engine.
    assert 10 << 20 < engine.peak_memory < torch_.peak_memory
    assert '"benchmark": {' in (bundle / "report.html").read_text().replace('"benchmark":{', '"benchmark": {')


@pytest.mark.sweep
def test_kernels_and_function_bodies(tmp_path: Path) -> None:
    opbridge.export(
        f"{TUTORIAL / 'my_add.py'}:model", path=tmp_path / "b", engines=("onnxruntime", "openvino"), verify=False
    )
    found = opbridge.bench(tmp_path / "b", seconds=0.05)
    assert [row.label for row in found.measurements] == [
        *("PyTorch", "onnxruntime with kernels", "onnxruntime with function bodies", "openvino with kernels"),
    ]


@pytest.mark.slow
def test_a_model_that_pytorch_does_not_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    opbridge.export(small_model(tmp_path / "m.onnx"), path=tmp_path / "b", verify=False)
    ran = Ran(capfd, "bench", tmp_path / "b", "--seconds", 0.02, "--threads", "1,2", "--json")
    assert [(row["label"], row["threads"], row["ratio"]) for row in ran.data["measurements"]] == [
        *(("onnxruntime", 1, None), ("onnxruntime", 2, None)),
    ]
    assert json.loads((tmp_path / "b" / "benchmark.json").read_text())["measurements"] == ran.data["measurements"]


@pytest.mark.sweep
def test_a_bundle_of_somebody_else(bundle: Path) -> None:
    """Its entry is code, which does not run: only the engine is measured, on the user's inputs."""
    of_a_stranger(bundle)
    with pytest.raises(opbridge.InputError, match="There are no inputs: ") as caught:
        opbridge.bench(bundle, seconds=0.02)
    assert "--input FILE.npz" in caught.value.fix
    found = opbridge.bench(bundle, seconds=0.02, inputs={"x": np.ones((2, 4), np.float32)})
    assert [row.label for row in found.measurements] == ["onnxruntime"]
    assert found.notes[0].startswith("PyTorch is not measured: ")


@pytest.mark.parametrize(
    ("option", "value", "message"), [("--seconds", "-1", "are positive"), ("--input", "y.npz", "y.npz")]
)
def test_wrong_options(
    tmp_path: Path, option: str, value: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    opbridge.export(small_model(tmp_path / "m.onnx"), path=tmp_path / "b", verify=False)
    ran = Ran(capfd, "bench", tmp_path / "b", option, value)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err


def test_wrong_numbers_of_threads(capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd, "bench", "b", "--threads", "1,0")
    assert ran.code == 2
    assert "'1,0' is not a list of positive numbers, such as 1,2" in ran.err
