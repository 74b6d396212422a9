"""Faults planted in one node of an engine's model: bisection must name that node."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import rich.console
import torch
from torch.nn import functional

import opbridge
from opbridge import engines
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.ladder.climb import climb
from opbridge.onnx_model.write import save_model
from opbridge.proof.bisect.intermediate_checks import ObservableModel
from opbridge.proof.bisect.intermediates_engine import EngineModel, loader, marked_model
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.reference_onnx import OnnxReference
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify
from opbridge.report.verification import verification_view
from opbridge.verbs.onnx_entry import load_onnx

pytestmark = pytest.mark.newest

ENGINE = "onnxruntime"


class Pictures(torch.nn.Module):
    """Convolution, pooling, an activation with an attribute, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 6, 3, padding=1)
        self.linear = torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.leaky_relu(self.convolution(x), 0.3)
        x = functional.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False)
        return torch.log_softmax(self.linear(x.mean((2, 3))), -1)


class Attention(torch.nn.Module):
    """Attention by hand, over a dynamic number of tokens, with results that come in several."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        query, key, value = self.projection(x).split(8, -1)
        weights = torch.softmax(query @ key.transpose(1, 2) * 0.35, -1)
        y = self.norm(weights @ value - x)
        best, place = y.max(-1)
        return y * best.unsqueeze(-1), place


class Recurrent(torch.nn.Module):
    """Nodes with several results that are not those of the captured operator."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (hidden, cell) = self.layers(x)
        return torch.tanh(y) * 0.5, hidden + cell


class Chain(torch.nn.Module):
    """Many small layers, each of several nodes."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sigmoid(layer(x)) * 2 + x
        return x


@dataclasses.dataclass(frozen=True)
class Exported:
    captured: Any
    model: ir.Model
    origins: Mapping[str, Any]


@functools.cache
def exported(name: str) -> Exported:
    torch.manual_seed(0)
    tokens = {"x": {1: torch.export.Dim("tokens", min=2, max=64)}}
    make: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
        "pictures": lambda: (Pictures().eval(), (torch.randn(2, 3, 9, 9),), None),
        "attention": lambda: (Attention().eval(), (torch.randn(2, 6, 8),), tokens),
        "recurrent": lambda: (Recurrent().eval(), (torch.randn(3, 4, 8),), None),
        "chain": lambda: (Chain(24).eval(), (torch.randn(3, 16),), None),
        "numbers": lambda: (lambda x: x.to(torch.int64), (torch.randn(3),), None),
    }
    module, args, shapes = make[name]()
    captured = capture(module, args, dynamic_shapes=shapes)
    climbed = climb(captured, Catalog.load(()), [engines.get(ENGINE)])
    return Exported(captured, climbed.models[ENGINE], climbed.translated.origins)


def verified(
    name: str,
    model: ir.Model,
    folder: Path,
    load: Callable[[Path], Any] | None = None,
    whole: Callable[[Path], Any] | None = None,
    **options: Any,
) -> Verification:
    """Verify an engine's model, perhaps a faulty one, against the captured graph of the sound one."""
    save_model(model, folder)
    file = folder / "model.onnx"
    most_bytes = options.pop("most_bytes", None)
    observable = ObservableModel(file, load or loader(engines.get(ENGINE)), exported(name).origins, most_bytes)
    session = (whole or functools.partial(IsolatedSession, ENGINE))(file)
    with session:
        return verify(
            CapturedReference(exported(name).captured),
            session,
            engine=ENGINE,
            options=VerifyOptions(**options),
            observable=observable,
        )


def node_of(model: ir.Model, operator: str, number: int = 0) -> ir.Node:
    return [node for node in model.graph if node.op_type == operator][number]


def wrong_weight(model: ir.Model) -> ir.Node:
    node = node_of(model, "Gemm")
    weight = node.inputs[2]
    assert weight is not None
    assert weight.const_value is not None
    array = weight.const_value.numpy().copy()
    array[1] += 0.01
    weight.const_value = ir.tensor(array, name=weight.name)
    return node


def wrong_factor(model: ir.Model) -> ir.Node:
    node = next(node for node in model.graph if node.op_type == "Mul" and node.inputs[1].const_value is not None)
    replacement = ir.Value(name="planted", const_value=ir.tensor(np.float32(0.351), name="planted"))
    model.graph.initializers.add(replacement)
    node.replace_input_with(1, replacement)
    return node


def dropped_attribute(model: ir.Model) -> ir.Node:
    node = node_of(model, "LeakyRelu")
    del node.attributes["alpha"]
    return node


def wrong_divisor(model: ir.Model) -> ir.Node:
    node = node_of(model, "AveragePool")
    node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    return node


def swapped_inputs(model: ir.Model) -> ir.Node:
    node = node_of(model, "Sub")
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)
    return node


def other_axis(model: ir.Model) -> ir.Node:
    node = node_of(model, "Softmax")
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    return node


def swapped_results(model: ir.Model) -> ir.Node:
    node = node_of(model, "Split")
    query, key, _ = node.outputs
    for one, other in ((query, key), (key, query)):
        one.name = f"{other.name}.swapped"
    query.name, key.name = (str(value.name).removesuffix(".swapped") for value in (query, key))
    readers = {value: tuple(value.uses()) for value in (query, key)}
    for value, other in ((query, key), (key, query)):
        for reader, index in readers[value]:
            reader.replace_input_with(index, other)
    return node


FAULTS = [
    ("pictures", wrong_weight),
    ("pictures", dropped_attribute),
    ("pictures", wrong_divisor),
    ("attention", wrong_factor),
    ("attention", swapped_inputs),
    ("attention", other_axis),
    ("attention", swapped_results),
]


@pytest.mark.quick("wrong_weight", every=6)
@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[plant.__name__ for _, plant in FAULTS])
def test_names_the_planted_node(name: str, plant: Callable[[ir.Model], ir.Node], tmp_path: Path) -> None:
    model = exported(name).model.clone()
    planted = plant(model)
    found = verified(name, model, tmp_path)
    assert found.verdict == "failed"
    assert found.divergences
    for divergence in found.divergences:
        assert divergence.verdict == "diverges"
        assert divergence.first is not None
        assert planted.name in (divergence.first.node, *divergence.between)
        assert len(divergence.between) <= 2
        assert divergence.first.operator == f"ai.onnx::{planted.op_type}" or divergence.between
        assert divergence.first.source.startswith("tests/proof/bisect/test_bisection.py:")
        assert divergence.first.ratio > 1
        assert divergence.runs <= 5
    assert str(found.divergences[0].first) in found.summary()


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", ["pictures", "attention", "recurrent"])
def test_values_of_a_sound_model_are_those_of_the_captured_graph(name: str, tmp_path: Path) -> None:
    found = verified(name, exported(name).model, tmp_path, trace=True)
    assert found.passed
    assert not found.divergences
    (trace,) = found.traces
    assert trace.depth == len(list(exported(name).model.graph))
    assert 3 * len(trace.values) >= trace.depth
    assert [value.depth for value in trace.values] == sorted(value.depth for value in trace.values)
    assert {value.status for value in trace.values} <= {"equal", "within budget"}
    assert all(value.source for value in trace.values)


class Wrapped:
    """A session whose results are changed on their way."""

    def __init__(self, file: Path, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> None:
        self._session = IsolatedSession(ENGINE, file)
        self._change = change
        self.inputs, self.outputs = self._session.inputs, self._session.outputs

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._change(self._session.run(feeds))

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def test_a_divergence_that_vanishes_when_observed(tmp_path: Path) -> None:
    def wrong_alone(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: array * np.float32(1.01) if len(results) == 1 else array for name, array in results.items()}

    load = functools.partial(Wrapped, change=wrong_alone)
    found = verified("pictures", exported("pictures").model, tmp_path, load, load)
    (divergence,) = found.divergences
    assert divergence.verdict == "vanishes when observed"
    assert divergence.first is not None
    assert divergence.first.value == "output"


def test_a_model_whose_values_are_all_of_another_type(tmp_path: Path) -> None:
    model = exported("numbers").model
    node_of(model, "Cast").attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT)
    model.graph.outputs[0].dtype = ir.DataType.FLOAT
    found = verified("numbers", model, tmp_path)
    assert [comparison.status for comparison in found.comparisons] == ["dtype"]
    (divergence,) = found.divergences
    assert divergence.verdict == "not found"
    assert divergence.detail == "no value between the inputs and the outputs has a counterpart in the reference"


@pytest.mark.slow
def test_an_engine_that_is_not_deterministic(tmp_path: Path) -> None:
    model = exported("pictures").model
    pool = node_of(model, "AveragePool")
    random = np.random.default_rng(0)
    with EngineModel(model, loader(engines.get(ENGINE))) as opened:
        sound = opened.ancestors([str(pool.outputs[0].name)])

    def shaken(results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            name: array if name in sound else array * np.float32(1 + random.uniform(0.01, 0.1))
            for name, array in results.items()
        }

    load = functools.partial(Wrapped, change=shaken)
    found = verified("pictures", model, tmp_path, load, load)
    (divergence,) = found.divergences
    assert divergence.verdict == "not deterministic"
    assert divergence.first is not None
    assert divergence.first.node == pool.name


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("layer", [0, 11, 23])
def test_a_search_takes_a_logarithmic_number_of_runs(layer: int, tmp_path: Path) -> None:
    model = exported("chain").model.clone()
    planted = node_of(model, "Sigmoid", layer)
    squared = ir.node("Mul", [planted.outputs[0], planted.outputs[0]], name="planted")
    readers = [use for use in planted.outputs[0].uses() if use.node is not squared]
    model.graph.insert_after(planted, squared)
    for reader, index in readers:
        reader.replace_input_with(index, squared.outputs[0])
    squared.outputs[0].name = "planted_value"
    found = verified("chain", model, tmp_path, most_bytes=1)
    (divergence,) = found.divergences
    assert divergence.first is not None
    assert "planted" in (divergence.first.node, *divergence.between)
    nodes = len(list(model.graph))
    # One value at a time: halves, the segment alone, and the repetitions in the beginning.
    assert divergence.runs <= math.ceil(math.log2(nodes)) + 5
    whole = verified("chain", model, tmp_path)
    assert whole.divergences[0].first == divergence.first
    assert whole.divergences[0].runs <= 4


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    model = exported("pictures").model.clone()
    wrong_divisor(model)
    found = verified("pictures", model, tmp_path, bisect=False)
    assert found.verdict == "failed"
    assert not found.divergences
    assert not found.traces


def test_a_given_value_is_read_from_an_input_and_computed_all_the_same() -> None:
    model = exported("pictures").model
    pooled = node_of(model, "AveragePool").outputs[0]
    array = np.zeros((2, 6, 5, 5), np.float32)
    part, stand_ins = marked_model(model, ["output", str(pooled.name)], {str(pooled.name): array})
    assert [value.name for value in part.graph.outputs] == ["output", pooled.name]
    assert {value.name for value in part.graph.inputs} == {"x", *stand_ins.values()}
    after, stand_ins = marked_model(model, ["output"], {str(pooled.name): array})
    assert [value.name for value in after.graph.inputs] == list(stand_ins.values())
    assert not [node for node in after.graph if node.op_type in ("Conv", "AveragePool")]
    assert all("convolution" not in name for name in after.graph.initializers)


WRONG_OPERATOR = """
import torch
from opbridge import decomposition


@decomposition("aten::avg_pool2d", overrides="to be wrong")
def avg_pool2d(
    self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    '''A maximum.

    avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False,
        bool count_include_pad=True, int? divisor_override=None) -> Tensor
    '''
    return torch.ops.aten.max_pool2d(self, kernel_size, stride, padding) * 0.5
"""

ENTRY = """
import torch


class Pooled(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        y = torch.nn.functional.avg_pool2d(y, 2)
        return torch.exp(y)


def make():
    return Pooled(), (torch.rand(1, 2, 8, 8),)
"""


@pytest.mark.sweep
def test_a_bundle_verified_later_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG_OPERATOR)
    (tmp_path / "entry.py").write_text(ENTRY)
    entry, bundle = f"{tmp_path / 'entry.py'}:make", tmp_path / "bundle"
    opbridge.export(entry, path=bundle, ops=[tmp_path / "wrong.py"], verify=False, entry=entry)
    assert str(tmp_path) not in (bundle / "bundle.json").read_text()
    command = [sys.executable, "-m", "opbridge", "verify", "bundle", "--reference", "entry.py:make", "--json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    data = json.loads(run.stdout)
    (divergence,) = data["divergences"]
    assert divergence["verdict"] == "diverges"
    assert divergence["first"]["target"].startswith("aten::avg_pool2d")
    assert divergence["first"]["source"] == "entry.py:8"
    assert json.loads((bundle / "verification.json").read_text())["divergences"] == [divergence]
    console = rich.console.Console(width=300, file=io.StringIO())
    console.print(*verification_view(data), sep="\n")
    for shown in (console.file.getvalue(), Verification.from_dict(data).summary()):
        assert "first mismatching node: " in shown
        assert "of aten::avg_pool2d.default) at entry.py:8" in shown
        assert "; largest error " in shown


@pytest.mark.sweep
def test_an_onnx_model_against_itself(tmp_path: Path) -> None:
    original = exported("pictures").model.clone()
    faulty = original.clone()
    planted = dropped_attribute(faulty)
    save_model(faulty, tmp_path)
    file, engine = tmp_path / "model.onnx", engines.get(ENGINE)
    options, observable = VerifyOptions(trace=True), ObservableModel(file, loader(engine))
    with OnnxReference(load_onnx(original).model, engine) as reference, IsolatedSession(ENGINE, file) as session:
        found = verify(reference, session, engine=ENGINE, options=options, observable=observable)
    assert found.verdict == "failed"
    (divergence,) = found.divergences
    assert divergence.verdict == "diverges"
    assert divergence.first is not None
    assert divergence.first.node == planted.name
    (trace,) = found.traces
    first = next(value for value in trace.values if value.ratio > 1)
    assert first.node == planted.name


@pytest.mark.slow
def test_a_divergence_in_a_function_names_its_call(tmp_path: Path) -> None:
    @opbridge.operator("bisected::scaled")
    def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
        return torch.tanh(x) * factor

    class Calls(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(scaled(x + 1, 0.5)) - x

    captured = capture(Calls(), (torch.rand(3, 4),))
    catalog = Catalog.load((scaled,))
    climbed = climb(captured, catalog, [engines.get(ENGINE)])
    model = climbed.models[ENGINE]
    body = next(iter(model.functions.values()))
    tanh = next(node for node in body if node.op_type == "Tanh")
    tanh.op_type = "Sigmoid"
    save_model(model, tmp_path)
    file = tmp_path / "model.onnx"
    observable = ObservableModel(file, loader(engines.get(ENGINE)), climbed.translated.origins)
    with IsolatedSession(ENGINE, file) as session:
        found = verify(CapturedReference(captured), session, engine=ENGINE, observable=observable)
    (divergence,) = found.divergences
    assert divergence.first is not None
    assert divergence.first.operator == "bisected::scaled"
    assert textwrap.shorten(str(divergence), 40).startswith("first mismatching node:")
