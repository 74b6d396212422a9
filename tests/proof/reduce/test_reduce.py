"""The smallest model that still fails: planted faults of engines, mappings and exports, and their scripts."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import crashing_engine
import faulty_engine
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from places import SUPPORT

import opbridge
from opbridge.bundle.bundle import read_bundle
from opbridge.bundle.write import write_bundle
from opbridge.capture.entry import load_entry
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.onnx_model.read import model_of_proto
from opbridge.proof.reduce.minimise import minimise
from opbridge.proof.reduce.problem import Problem, evaluate, widened
from opbridge.proof.reduce.result import Reduction

pytestmark = pytest.mark.newest

DEEP = """
import torch
import unmapped


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(5))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) + torch.sigmoid(x)
        return x


class Lost(Deep):
    def forward(self, x):
        first, second = super().forward(x).split(4, -1)
        return super().forward(torch.cat([second, unmapped.lost(first * 2)], -1)).sum()


class Branch(torch.nn.Module):
    def forward(self, x, scale):
        return x * scale * float(f"{x.sum()}")


class Branches(Deep):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ModuleDict({"branch": Branch()})

    def forward(self, x):
        return self.inner["branch"](super().forward(x), 2.0)


def deep():
    return Deep(), (torch.rand(3, 8),)


def lost():
    return Lost(), (torch.rand(3, 8),)


def branches():
    return Branches(), (torch.rand(3, 8),)
"""


def chain(path: Path, layers: int = 14) -> str:
    """A model of 3 nodes a layer, with one Erf in the middle."""
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number in range(layers):
        weights.append(numpy_helper.from_array(random.standard_normal((8, 8)).astype(np.float32) / 3, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"], f"matmul{number}"))
        nodes.append(helper.make_node("Tanh", [f"m{number}"], [f"t{number}"], f"tanh{number}"))
        nodes.append(helper.make_node("Add", [f"t{number}", last], [f"a{number}"], f"add{number}"))
        last = f"a{number}"
        if number == layers // 2:
            nodes.append(helper.make_node("Erf", [last], ["e"], "erf"))
            last = "e"
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    result = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "chain", [value], [result], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return str(path)


def run_script(folder: Path) -> subprocess.CompletedProcess[str]:
    """The script in a process and a folder of its own."""
    command = [sys.executable, str(folder / "reproduce.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder.parent, check=False)


def entry(folder: Path, name: str) -> str:
    (folder / "deep.py").write_text(DEEP)
    return f"{folder}/deep.py:{name}"


def test_delta_debugging_keeps_what_is_needed() -> None:
    tries: list[Sequence[int]] = []

    def fails(items: Sequence[int]) -> bool:
        tries.append(items)
        return {13, 14, 40} <= set(items)

    assert minimise(range(100), fails) == [13, 14, 40]
    tries.clear()
    assert minimise(range(1000), lambda items: fails([*items, 14, 40])) == [13]
    assert len(tries) < 25


def test_a_normalization_has_a_reference_in_float64() -> None:
    x, y, weight = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y", "w"))
    node = helper.make_node("LayerNormalization", ["x", "w"], ["y"], stash_type=TensorProto.FLOAT)
    graph = helper.make_graph([node], "g", [x, weight], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    feeds = {"x": np.array([1, 2, 4, 8], np.float32), "w": np.ones(4, np.float32)}
    float64 = widened(Problem(model_of_proto(model), feeds))
    result = evaluate(float64.model, float64.feeds)
    assert result is not None
    assert result["y"].dtype == np.float64
    assert abs(result["y"].mean()) < 1e-15


@pytest.mark.sweep
def test_a_wrong_kernel_among_43_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty_engine.install(tmp_path / "engine", monkeypatch, "Erf")
    found = opbridge.reduce(chain(tmp_path / "chain.onnx"), path=tmp_path / "out", engine="faulty")
    assert (found.kind, found.nodes, found.nodes_before, found.operators) == ("results", 1, 43, ("ai.onnx::Erf",))
    assert found.finished
    assert found.reproduces
    assert found.files == ("model.onnx", "reproduce.py")
    done = run_script(tmp_path / "out")
    assert done.returncode == 1
    assert "expected, to within" in done.stdout
    # Without the fault the same script is content.
    monkeypatch.setenv("FAULTY", "Nothing")
    assert run_script(tmp_path / "out").returncode == 0
    assert Reduction.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.slow
def test_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Erf=abort")
    model = chain(tmp_path / "chain.onnx")
    assert main(["reduce", model, "-o", str(tmp_path / "out"), "--engine", "crashing", "-q"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "a crash: " in out
    assert "SIGABRT" in out
    assert "1 node of 43 left: ai.onnx::Erf" in out
    assert "does not show the fault" not in out
    assert [node.op_type for node in onnx.load(tmp_path / "out" / "model.onnx").graph.node] == ["Erf"]
    assert run_script(tmp_path / "out").returncode < 0


@pytest.mark.slow
def test_an_engine_that_refuses_a_node(tmp_path: Path) -> None:
    model = onnx.load(chain(tmp_path / "chain.onnx", 2))
    node = next(node for node in model.graph.node if node.op_type == "Erf")
    node.op_type, node.domain = "Unheard", "of.nobody"
    model.opset_import.append(helper.make_opsetid("of.nobody", 1))
    onnx.save(model, tmp_path / "chain.onnx")
    found = opbridge.reduce(tmp_path / "chain.onnx", path=tmp_path / "out")
    assert (found.kind, found.nodes, found.operators) == ("error", 1, ("of.nobody::Unheard",))
    script = (tmp_path / "out" / "reproduce.py").read_text()
    assert "import opbridge" not in script
    done = run_script(tmp_path / "out")
    assert done.returncode == 1
    assert "is not a registered function/op" in done.stderr


def with_another_node(bundle: Path, path: Path) -> str:
    """A bundle in which one Tanh is a Sigmoid."""
    read = read_bundle(bundle)
    model = onnx.load(bundle / "model.onnx")
    [node for node in model.graph.node if node.op_type == "Tanh"][3].op_type = "Sigmoid"

    def write(folder: Path) -> None:
        onnx.save(model, folder / "model.onnx")

    write_bundle(path, read.manifest, write, sources=read.sources)
    return str(path)


@pytest.mark.slow
def test_a_wrong_mapping(tmp_path: Path) -> None:
    text = entry(tmp_path, "deep")
    loaded = load_entry(text)
    opbridge.export(loaded.model, loaded.args, path=tmp_path / "bundle", verify=False, entry=text)
    wrong = with_another_node(tmp_path / "bundle", tmp_path / "wrong")
    found = opbridge.reduce(wrong, path=tmp_path / "out")
    assert (found.kind, found.nodes, found.operators) == ("mapping", 1, ("ai.onnx::Sigmoid",))
    assert "aten::tanh.default" in found.message
    assert "deep.py:14" in found.message
    done = run_script(tmp_path / "out")
    assert done.returncode == 1
    assert "expected, to within" in done.stdout


class Largest(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.tanh().topk(2).values.exp()


@pytest.mark.slow
def test_a_wrong_mapping_of_an_operator_with_several_results(tmp_path: Path) -> None:
    model = Largest(), (torch.arange(12.0).reshape(2, 6),)
    bundle = opbridge.export(*model, path=tmp_path / "bundle", verify=False)
    changed = onnx.load(bundle.path / "model.onnx")
    (node,) = (node for node in changed.graph.node if node.op_type == "TopK")
    next(attribute for attribute in node.attribute if attribute.name == "largest").i = 0
    wrong, sources = str(tmp_path / "wrong"), bundle.sources
    write_bundle(wrong, bundle.manifest, lambda folder: onnx.save(changed, folder / "model.onnx"), sources=sources)
    found = opbridge.reduce(wrong, path=tmp_path / "out", reference=model)
    assert found.kind == "mapping"
    assert "aten::topk.default" in found.message


@pytest.mark.sweep
def test_an_operator_that_nothing_maps(tmp_path: Path) -> None:
    found = opbridge.reduce(entry(tmp_path, "lost"), path=tmp_path / "out")
    assert (found.kind, found.nodes, found.operators) == ("export", 1, ("opbridge_tests::lost",))
    assert found.nodes_before > 40
    assert found.reproduces  # It was run in a process of its own.
    script = (tmp_path / "out" / "reproduce.py").read_text()
    assert "import opbridge" not in script
    assert "import unmapped" not in script
    assert "torch.onnx.export(" in script


@pytest.mark.sweep
def test_a_model_that_can_not_be_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    found = opbridge.reduce(entry(tmp_path, "branches"), path=tmp_path / "out")
    assert (found.kind, found.nodes, found.operators) == ("capture", 1, ("Branch",))
    assert found.nodes_before == 9
    assert found.files == ("deep.py", "reproduce.py")
    script = (tmp_path / "out" / "reproduce.py").read_text()
    assert ".get_submodule('inner.branch')" in script
    assert found.reproduces


def test_nothing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = chain(tmp_path / "chain.onnx", 2)
    assert main(["reduce", model, "-o", str(tmp_path / "out"), "-q"]) == 1
    assert "error: Nothing fails: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reference": "lost.py:model"}, "there is no file lost.py"),
        ({"reference": 7}, "A int was passed in the place of a model"),
        ({"ops": ["lost.py"]}, "lost.py"),
    ],
)
def test_what_it_is_compared_with_is_read_before_the_search(
    wrong: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Erf=abort")
    with pytest.raises(InputError, match=message):
        opbridge.reduce(chain(tmp_path / "chain.onnx"), path=tmp_path / "out", engine="crashing", **wrong)


def test_a_folder_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        opbridge.reduce(chain(tmp_path / "chain.onnx", 2), path=tmp_path / "out")
    with pytest.raises(InputError, match="leaves no time"):
        opbridge.reduce(tmp_path / "chain.onnx", path=tmp_path / "new", time_limit=0)


@pytest.mark.slow
def test_the_time_limit_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashing_engine.install(tmp_path / "engine", monkeypatch, "Erf=abort")
    found = opbridge.reduce(chain(tmp_path / "chain.onnx"), path=tmp_path / "out", engine="crashing", time_limit=0.1)
    assert not found.finished
    assert found.kind == "crash"
    assert found.nodes == 43
    assert dataclasses.replace(found, seconds=0.0).tries == 1
