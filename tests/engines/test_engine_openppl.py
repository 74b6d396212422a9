"""What is special about OpenPPL: its list of operators, old opsets, and a session by a binding that is not here.

The binding is a stand-in of a few lines: it shows that the session makes the documented calls and what it says when one
of them fails, and nothing about OpenPPL itself.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import onnx
import pytest
import torch
from one_node import FLOAT, make_model, one_node, save, to_ir
from onnx import helper
from torch.nn import functional

import opbridge
from opbridge import engines
from opbridge.engines.openppl import native
from opbridge.engines.openppl.listed import LISTED
from opbridge.engines.probe import probe
from opbridge.errors import EngineError, EngineNotInstalledError, InputError
from opbridge.ladder.adapt import adapt

pytestmark = pytest.mark.newest

not_built = pytest.mark.skipif(native.is_built(), reason="not run: it is about a machine without OpenPPL")


@pytest.fixture
def engine():
    return engines.get("openppl")


def refusal_of(engine, model):
    converted = to_ir(model)
    refusal = engine.supports(converted.graph[-1], converted.opset_imports)
    return refusal and refusal.reason


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes", "reason"),
    [
        ("Relu", 11, {}, None),
        ("Relu", 16, {}, None),
        ("Relu", 17, {}, "OpenPPL takes opsets up to 16, not 17"),
        ("Round", 13, {}, "OpenPPL 0.9.2 has no kernel for ai.onnx::Round"),
        ("NonZero", 13, {}, "OpenPPL 0.9.2 takes NonZero in models of opset 9 to 12, and this one is of opset 13"),
        ("Softmax", 13, {"axis": 0}, "OpenPPL crashes in a Softmax over an inner axis from opset 13 on"),
        ("Softmax", 13, {"axis": 1}, None),
        ("Softmax", 11, {"axis": 0}, None),
    ],
)
def test_the_list_answers(engine, op_type, opset, attributes, reason):
    result = [("INT64", None)] if op_type == "NonZero" else [(FLOAT, [2, 3])]
    model = one_node(op_type, [(FLOAT, [2, 3])], result, opset=opset, **attributes)
    assert refusal_of(engine, model) == reason


@pytest.mark.parametrize(("dtype", "taken"), [("FLOAT", True), ("INT64", True), ("BOOL", False), ("INT32", False)])
def test_equal_is_taken_in_two_types(engine, dtype, taken):
    reason = refusal_of(engine, one_node("Equal", [(dtype, [2]), (dtype, [2])], [("BOOL", [2])], opset=13))
    assert reason == (None if taken else f"OpenPPL reports Equal of {dtype.lower()} as unsupported when it runs")


def test_the_list_is_of_operators_of_the_standard():
    for (domain, name), (first, last) in LISTED.items():
        assert first <= last
        assert domain or onnx.defs.has(name), name


def test_an_operator_of_an_older_opset_takes_the_model_there(engine):
    matrix = (FLOAT, ["n", 3])
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["y"])]
    model = make_model(nodes, {"x": matrix}, {"y": ("INT64", [2, "k"])}, opset=16)
    adapted, adaptations = adapt(to_ir(model), engine)
    assert adapted.opset_imports[""] == 12
    assert adaptations[0].what == "opset 16 becomes 12: OpenPPL takes more of its operators there"
    assert probe(adapted, engine) == ()


class Missing(torch.nn.Module):
    """Only what OpenPPL has no kernel for, or crashes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.instance = torch.nn.LayerNorm(8), torch.nn.InstanceNorm1d(4, affine=True)

    def forward(self, x):
        y = functional.softplus(self.instance(self.layer(x)))
        index = x.argmin(2)
        return (
            (4 * x).round().reciprocal(),
            torch.softmax(y, 1),
            y.norm(dim=2),
            index,
            index % 3,
            (index - 4) % 3,
            functional.softplus(40 * x),
            torch.maximum(x, y).abs(),
            torch.minimum(y, x.trunc()),
            torch.where((x > 0.5) | (y > 1), x, y),
        )


@pytest.mark.slow
@not_built
def test_what_it_lacks_is_expressed_by_what_it_has(engine, tmp_path):
    model, x = Missing().eval(), torch.randn(2, 4, 8)
    bundle = opbridge.export(model, (x,), path=tmp_path / "b", engines=["openppl"], dynamic_shapes={"x": {0: "n"}})
    assert bundle.verification["verdict"] == "exported, not run"
    assert "pyppl is not installed" in bundle.verification["error"]
    assert bundle.verified is None
    proto = onnx.load(bundle.path / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 12, "ReduceSum is not taken in newer models"
    assert {node.op_type for node in proto.graph.node} <= {name for domain, name in LISTED if not domain}
    # Another engine computes of it what PyTorch does, at another size too.
    session = engines.get("onnxruntime").load(bundle.path / "model.onnx")
    ties = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -0.25]).repeat(3, 4, 1) / 4
    for given in (x, ties):
        for result, expected in zip(session(given.numpy()), model(given), strict=True):
            np.testing.assert_allclose(result, expected.detach().numpy(), rtol=2e-5, atol=2e-5)
    with pytest.raises(EngineNotInstalledError, match="pyppl is not installed") as caught:
        opbridge.load(bundle.path, "openppl")
    assert "docs/engines.md" in caught.value.fix


class Tensor:
    def __init__(self, name: str) -> None:
        self.name, self.array = name, None

    def GetName(self) -> str:
        return self.name

    def ConvertFromHost(self, array: np.ndarray) -> int:
        self.array = array.copy()
        return 0

    def ConvertToHost(self):
        return memoryview(np.ascontiguousarray(self.array)) if self.array.size else None

    def GetShape(self):
        return types.SimpleNamespace(GetDims=lambda: list(self.array.shape))


class Runtime:
    """It negates."""

    def __init__(self, codes) -> None:
        self.x, self.y, self.codes = Tensor("x0"), Tensor("y0"), codes
        self.GetInputCount = self.GetOutputCount = lambda: 1
        self.GetInputTensor, self.GetOutputTensor = lambda index: self.x, lambda index: self.y

    def Run(self) -> int:
        self.y.array = -self.x.array
        return self.codes.get("Run", 0)


@pytest.fixture
def stand_in(monkeypatch):
    """A binding whose calls give the codes that a test sets, or success."""
    codes: dict[str, int] = {}
    calls: list[str] = []

    def call(name):
        return lambda *args: (calls.append(name), codes.get(name, 0))[1]

    builder = types.SimpleNamespace(
        **{name: call(name) for name in ("LoadModelFromFile", "SetResources", "Preprocess")},
        CreateRuntime=lambda: Runtime(codes),
    )
    factory = types.SimpleNamespace(Create=lambda *args: builder)
    nn = types.ModuleType("pyppl.nn")
    nn.x86 = types.SimpleNamespace(EngineFactory=factory, EngineOptions=lambda: None)
    nn.onnx = types.SimpleNamespace(RuntimeBuilderFactory=factory, RuntimeBuilderResources=types.SimpleNamespace)
    nn.PPLNN_VERSION_MAJOR, nn.PPLNN_VERSION_MINOR, nn.PPLNN_VERSION_PATCH = 0, 9, 2
    common = types.ModuleType("pyppl.common")
    common.RC_SUCCESS, common.GetRetCodeStr = 0, lambda code: {7: "not found"}[code]
    common.LOG_LEVEL_ERROR, nn.SetLoggingLevel = 3, lambda level: calls.append(f"SetLoggingLevel {level}")
    for name, module in {"pyppl": types.ModuleType("pyppl"), "pyppl.nn": nn, "pyppl.common": common}.items():
        monkeypatch.setitem(sys.modules, name, module)
    native.binding.cache_clear()
    yield types.SimpleNamespace(codes=codes, calls=calls, nn=nn)
    native.binding.cache_clear()


@pytest.fixture
def negation(tmp_path):
    return save(one_node("Neg", [(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])], opset=13), tmp_path / "m.onnx")


def test_a_session_makes_the_documented_calls(engine, stand_in, negation):
    assert (engine.version, engine.not_run) == ("0.9.2", None)
    assert "runs" not in engine.limits
    session = engine.load(negation, threads=1)
    assert stand_in.calls == ["SetLoggingLevel 3", "LoadModelFromFile", "SetResources", "Preprocess"]
    for size in (2, 0):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        (y,) = session(x)
        assert np.array_equal(y, -x)
        assert y.shape == x.shape


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        ("LoadModelFromFile", r"OpenPPL refuses 'm\.onnx': reading gives 'not found'"),
        ("Preprocess", r"OpenPPL refuses 'm\.onnx': preparing gives 'not found'"),
        ("Run", "OpenPPL failed while running the model: running the model gives 'not found'"),
    ],
)
def test_a_return_code_is_an_error_with_its_words(engine, stand_in, negation, failing, message):
    stand_in.codes[failing] = 7
    with pytest.raises(EngineError, match=message) as caught:
        engine.load(negation)(np.ones((2, 3), np.float32))
    assert "log" in caught.value.fix


def test_a_build_without_the_x86_engine_and_options_that_it_has_not(engine, stand_in, negation, tmp_path):
    for options, message in (
        ({"providers": ["CPU"]}, "no execution providers"),
        ({"libraries": [tmp_path / "k.so"]}, "loads no libraries of kernels, and got k.so"),
        ({"threads": 0}, "at least one thread"),
    ):
        with pytest.raises(InputError, match=message):
            engine.load(negation, **options)
    del stand_in.nn.x86
    native.binding.cache_clear()
    with pytest.raises(EngineNotInstalledError, match="has no part 'x86'"):
        engine.load(negation)
