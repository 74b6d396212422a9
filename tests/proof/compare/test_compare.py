"""Two models beside each other: equal ones, planted faults that are named, sides that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import opbridge
from opbridge import engines
from opbridge.capture.entry import load_entry
from opbridge.cli import main
from opbridge.engines.process.limits import limited
from opbridge.errors import EngineNotInstalledError, InputError
from opbridge.proof.compare.result import ModelComparison
from opbridge.report.compare import comparison_view

pytestmark = pytest.mark.newest

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (torch.nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.sigmoid(self.second(x)) + x
        return torch.softmax(self.third(x), -1)


def model():
    return {"model": Net(), "args": (torch.rand(3, 8),), "dynamic_shapes": ({0: "batch"},)}


def other():
    net = Net()
    net.second.bias.data += 0.01
    return net, (torch.rand(3, 8),)


def wider():
    return Net(9), (torch.rand(3, 9),)


class Two(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def two():
    return Two(), (torch.rand(3, 8), torch.rand(3, 8))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an entry, torch's export of it, one with a fault, and a bundle."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "net.py").write_text(NET)
    entry = load_entry(f"{folder}/net.py:model")
    torch.onnx.export(
        entry.model.eval(), entry.args, folder / "good.onnx", dynamic_shapes=entry.dynamic_shapes, external_data=False
    )
    bad = onnx.load(folder / "good.onnx")
    node_of(bad, "Sigmoid").op_type = "HardSigmoid"
    onnx.save(bad, folder / "bad.onnx")
    onnx.save(anonymous(bad), folder / "anonymous.onnx")
    opbridge.export(entry.model, entry.args, path=folder / "bundle", dynamic_shapes=entry.dynamic_shapes, verify=False)
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def node_of(model: onnx.ModelProto, operator: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == operator)


def anonymous(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other names of all that is inside, and no notes of its exporter."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    outputs = {value.name for value in model.graph.output}
    names = {
        name: f"v{i}" for i, name in enumerate(o for n in model.graph.node for o in n.output) if name not in outputs
    }
    for node in model.graph.node:
        node.name = ""
        del node.metadata_props[:]
        for names_of in (node.input, node.output):
            for position, name in enumerate(names_of):
                names_of[position] = names.get(name, name)
    del model.graph.value_info[:]
    return model


def small(path: Path, *, shape: list[Any], dtype: int = TensorProto.FLOAT) -> str:
    """A model of one product."""
    x, y = (helper.make_tensor_value_info(name, dtype, shape) for name in "xy")
    weight = numpy_helper.from_array(np.array(2.0, helper.tensor_dtype_to_np_dtype(dtype)), "factor")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "factor"], ["y"], "mul")], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return str(path)


@pytest.mark.quick(every=9)
@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        ("net.py:model", "good.onnx", ()),
        ("bundle", "net.py:model", ()),
        ("good.onnx", "bundle", ()),
        ("good.onnx", None, ("onnxruntime", "reference")),
        ("net.py:model", None, ("eager", "program")),
    ],
)
def test_equal_models(first: str, second: str | None, where: tuple[str, ...]) -> None:
    found = opbridge.compare(first, second, engines=where)
    assert found.equal, found.to_dict()
    assert len(found.verification.cases) == 3  # other sizes too
    assert found.first.startswith(first)
    assert found.second.startswith(second or first)


@pytest.mark.slow
def test_an_entry_is_exported_for_an_engine_that_is_named() -> None:
    found = opbridge.compare("net.py:model", engines=("program", "onnxruntime"))
    assert found.equal
    assert "onnxruntime" in found.second
    assert "captured program" in found.first


@pytest.mark.slow
def test_two_entries_that_differ() -> None:
    found = opbridge.compare("net.py:model", "net.py:other")
    assert not found.equal
    assert [item.status for item in found.verification.comparisons] == ["differs"] * len(found.verification.cases)


@pytest.mark.quick("net.py")
@pytest.mark.parametrize("reference", ["net.py:model", "bundle"])
def test_the_first_node_that_diverges_is_named(reference: str) -> None:
    found = opbridge.compare(reference, "bad.onnx")
    assert not found.equal
    divergence = found.verification.divergences[0]
    assert divergence.verdict == "diverges", divergence
    assert divergence.first is not None
    assert (divergence.first.operator, divergence.first.node) == ("ai.onnx::HardSigmoid", "node_sigmoid")
    assert divergence.first.source.endswith("net.py:13")


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["net.py:model", "good.onnx"])
def test_without_names_values_are_matched_by_their_numbers(reference: str) -> None:
    first = opbridge.compare(reference, "anonymous.onnx").verification.divergences[0].first
    assert first is not None
    assert first.operator == "ai.onnx::HardSigmoid"


@pytest.mark.slow
def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "good.onnx", "bundle"]) == 0
    assert "A and B compute the same within the tolerance" in capsys.readouterr().out
    assert main(["compare", "net.py:model", "bad.onnx"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "first mismatching node: node_sigmoid (ai.onnx::HardSigmoid" in out
    assert "A and B do not compute the same" in out
    assert main(["compare", "good.onnx", "bad.onnx", "--rtol", "1", "--atol", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert ModelComparison.from_dict(data).to_dict() == data
    console = Console(record=True, width=200)
    console.print(*comparison_view(data))
    assert "good.onnx on onnxruntime" in console.export_text()


@pytest.mark.slow
def test_inputs_of_the_users_own(place: Path) -> None:
    inputs = [{"x": np.full((2, 8), 0.5, np.float32)}]
    found = opbridge.compare("good.onnx", "bundle", inputs=inputs)
    assert [case.name for case in found.verification.cases] == ["given 1"]
    with pytest.raises(InputError, match="'x' is missing"):
        opbridge.compare("net.py:model", "bundle", inputs=[{"z": inputs[0]["x"]}])


@pytest.mark.slow
def test_only_the_sizes_that_both_take_are_compared(tmp_path: Path) -> None:
    dynamic, fixed = small(tmp_path / "dynamic.onnx", shape=["n", 4]), small(tmp_path / "fixed.onnx", shape=[5, 4])
    found = opbridge.compare(dynamic, fixed)
    assert found.equal
    assert len(found.verification.cases) == 1
    assert "takes fixed sizes" in found.notes[0]
    fixed_net = tmp_path / "fixed_net.onnx"
    model = onnx.load("good.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 6
    onnx.save(model, fixed_net)
    found = opbridge.compare("net.py:model", str(fixed_net))
    assert found.equal
    assert [dict(case.sizes) for case in found.verification.cases] == [{"batch": 6}]


@pytest.mark.slow
def test_a_narrower_model_within_a_tolerance(tmp_path: Path) -> None:
    wide = small(tmp_path / "wide.onnx", shape=["n"])
    half = small(tmp_path / "half.onnx", shape=["n"], dtype=TensorProto.FLOAT16)
    found = opbridge.compare(wide, half, rtol=1e-2, atol=1e-2)
    assert found.equal
    assert "float16" in found.notes[0]


ERRORS = {
    "net.py:two takes the inputs x, y, and net.py:model takes x": ("net.py:model", "net.py:two", ()),
    "has the shape [3, 9] in net.py:wider": ("net.py:wider", "good.onnx", ()),
    "There is nothing to compare good.onnx with": ("good.onnx", None, ()),
    "A comparison has two sides, and 3 engines": ("good.onnx", "bundle", ("a", "b", "c")),
    "There is no engine 'onnxrunner'": ("good.onnx", "bundle", ("onnxrunner",)),
    "good.onnx is not a valid entry and can't run in PyTorch": ("good.onnx", "bundle", ("eager", "onnxruntime")),
    "There is no bundle or model at 'lost.onnx'": ("good.onnx", "lost.onnx", ()),
    "holds no model for the engine 'reference'": ("good.onnx", "bundle", ("onnxruntime", "reference")),
    "is not a valid entry: expected": ("net.py", "bundle", ()),
}


@pytest.mark.parametrize("message", ERRORS)
def test_sides_that_do_not_fit(message: str) -> None:
    first, second, where = ERRORS[message]
    with pytest.raises(InputError) as caught:
        opbridge.compare(first, second, engines=where)
    assert message in caught.value.message
    assert caught.value.fix


def expanding(path: Path) -> str:
    """A small file whose functions call one another so often that a trillion nodes are written out."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], opsets)]
    for number in range(40):
        body = [helper.make_node(f"F{number}", [a], [b], domain="f") for a, b in (("x", "m"), ("m", "y"))]
        functions.append(helper.make_function("f", f"F{number + 1}", ["x"], ["y"], body, opsets))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("F40", ["x"], ["y"], domain="f")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10), path)
    return str(path)


@pytest.mark.parametrize("is_first", [True, False])
def test_no_engine_gets_a_model_that_expands_without_end(tmp_path: Path, is_first: bool) -> None:
    models = [expanding(tmp_path / "calls.onnx"), small(tmp_path / "small.onnx", shape=["n"])]
    with limited(time_limit=10), pytest.raises(InputError, match=r"'calls.onnx' .* expands to more than"):
        opbridge.compare(*(models if is_first else reversed(models)))


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(self: Any) -> str:
        raise EngineNotInstalledError("It is not installed.", fix="pip install it.")

    monkeypatch.setattr(type(engines.get("reference")), "version", property(version))
    with pytest.raises(EngineNotInstalledError):
        opbridge.compare("good.onnx", engines=("onnxruntime", "reference"))
