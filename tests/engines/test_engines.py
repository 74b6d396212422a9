"""One contract, every engine; an engine that is not installed is not run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from one_node import BFLOAT16, DOUBLE, FLOAT, FLOAT16, make_model, one_node, save, to_ir
from onnx import helper, numpy_helper

from opbridge import engines
from opbridge.engines.base import Engine, Refusal, RefusalKind, TensorSpec
from opbridge.engines.onnxruntime import native
from opbridge.errors import EngineError, EngineNotInstalledError, InputError
from opbridge.kernels.dtypes import numpy_dtype
from opbridge.torch_graph import LOWEST_OPSET

# One that runs no model here, or none of these opsets, is asked in a file of its own: test_engine_openppl.py for one.
ONNX_ENGINES = [
    engine.name
    for engine in map(engines.get, engines.names())
    if engine.is_installed()
    and engine.accepts == "onnx"
    and engine.not_run is None
    and engine.newest_opset >= LOWEST_OPSET
]


@pytest.fixture(params=ONNX_ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engines.get(request.param)


@pytest.fixture
def ort() -> Engine:
    return engines.get("onnxruntime")


def ask(engine: Engine, model) -> Refusal | None:
    converted = to_ir(model)
    return engine.supports(converted.graph[0], converted.opset_imports)


def identity(tmp_path: Path, dtype: str, shape: list) -> Path:
    return save(one_node("Identity", [(dtype, shape)], [(dtype, shape)]), tmp_path / "identity.onnx")


# The contract.


def test_version_and_opset(engine):
    assert engine.version[0].isdigit()
    assert 18 <= engine.newest_opset < 100


def test_it_takes_its_newest_opset_and_not_the_next(engine):
    relu = [("FLOAT", [None])]
    assert ask(engine, one_node("Relu", relu, relu, opset=engine.newest_opset)) is None
    refusal = ask(engine, one_node("Relu", relu, relu, opset=engine.newest_opset + 1))
    assert refusal is not None
    assert f"up to {engine.newest_opset}, not {engine.newest_opset + 1}" in refusal.reason


def test_inputs_and_outputs_are_described(engine, tmp_path):
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["sum"])],
        {"a": (FLOAT, ["batch", 3]), "b": (FLOAT, [])},
        {"sum": (FLOAT, ["batch", 3])},
    )
    session = engine.load(save(model, tmp_path / "add.onnx"))
    assert session.inputs == (TensorSpec("a", "float32", ("batch", 3)), TensorSpec("b", "float32", ()))
    assert session.outputs == (TensorSpec("sum", "float32", ("batch", 3)),)
    assert session.outputs[0].to_dict() == {"name": "sum", "dtype": "float32", "shape": ["batch", 3]}
    (result,) = session(np.ones((2, 3), np.float32), np.array(2, np.float32))
    assert np.array_equal(result, np.full((2, 3), 3, np.float32))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize(
    ("onnx_type", "dtype"),
    [
        ("FLOAT", "float32"),
        ("DOUBLE", "float64"),
        ("FLOAT16", "float16"),
        ("BFLOAT16", "bfloat16"),
        ("BOOL", "bool"),
        ("INT8", "int8"),
        ("UINT8", "uint8"),
        ("INT32", "int32"),
        ("INT64", "int64"),
    ],
)
def test_every_dtype_goes_through_unchanged(engine, tmp_path, onnx_type, dtype, shape):
    session = engine.load(identity(tmp_path, onnx_type, [None] * len(shape)))
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(numpy_dtype(dtype))
    result = session.run({"x0": array})["y0"]
    assert session.inputs[0].dtype == dtype
    assert result.dtype == array.dtype
    assert result.shape == array.shape
    assert np.array_equal(result, array)


def test_layout_and_byte_order_do_not_matter(engine, tmp_path):
    session = engine.load(identity(tmp_path, "FLOAT", [None, None]))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for variant in (np.asfortranarray(array), array.astype(">f4"), np.repeat(array, 2, axis=1)[:, ::2]):
        assert np.array_equal(session.run({"x0": variant})["y0"], array)


@pytest.mark.quick("openvino-feeds0-input 'a' is missing; input 'b' is missing", every=3)
@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "input 'a' is missing; input 'b' is missing"),
        ({"a": 0, "b": 0, "c": 0}, "the model has no input 'c'"),
        ({"a": [1.0], "b": 0}, "Input 'a' takes a NumPy array (float32[n, 3]), but got a list."),
        ({"a": np.zeros((2, 3)), "b": 0}, "Input 'a' takes dtype float32, but got float64."),
        ({"a": np.zeros(3, np.float32), "b": 0}, "Input 'a' takes rank 2, float32[n, 3], but got rank 1, [3]."),
        ({"a": np.zeros((2, 4), np.float32), "b": 0}, "got shape [2, 4]: dimension 1 is 4, not 3."),
        (
            {"a": np.zeros((2, 3), np.float32), "b": np.zeros((5, 3), np.float32)},
            "Dimension 'n' is 2 in input 'a', but 5 in input 'b' (dimension 0 of [5, 3]).",
        ),
    ],
)
def test_wrong_inputs_are_named(engine, tmp_path, feeds, message):
    model = make_model(
        [helper.make_node("Add", ["a", "b"], ["sum"])],
        {"a": (FLOAT, ["n", 3]), "b": (FLOAT, ["n", 3])},
        {"sum": (FLOAT, ["n", 3])},
    )
    session = engine.load(save(model, tmp_path / "add.onnx"))
    with pytest.raises(InputError) as caught:
        session.run(feeds)
    assert message in caught.value.message
    assert caught.value.fix


def test_wrong_number_of_arrays(engine, tmp_path):
    session = engine.load(identity(tmp_path, "FLOAT", [2]))
    with pytest.raises(InputError, match=r"The model has 1 inputs \(x0\), but 2 arrays were passed"):
        session(np.zeros(2, np.float32), np.zeros(2, np.float32))


def test_what_fails_while_running_is_one_line_without_places_in_the_engines_source(engine, tmp_path):
    model = one_node("Add", [(FLOAT, ["n"]), (FLOAT, ["m"])], [(FLOAT, ["k"])])
    # ncnn, which compares no sizes, and TVM, which compiles for them, refuse the model before it runs.
    with pytest.raises(EngineError) as caught:
        engine.load(save(model, tmp_path / "add.onnx")).run(
            {"x0": np.zeros(2, np.float32), "x1": np.zeros(3, np.float32)}
        )
    said = {"onnxruntime": r"'the_node' \(Add\).*2 by 3"}
    others = r"mismatch|broadcast|R\.add\(x0, x1\)|operator 'Add'"
    assert re.search(said.get(engine.name, others), caught.value.message)
    assert "\n" not in caught.value.message
    assert ".h:" not in caught.value.message


def test_a_node_of_an_unknown_operator(engine):
    refusal = ask(engine, one_node("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"))
    assert refusal == Refusal(
        "the_node", "mine::Frobnicate", "no kernel for mine::Frobnicate", kind=RefusalKind.UNKNOWN_OPERATOR
    )
    assert refusal.to_dict()["missing_dtypes"] == []


def test_an_operator_newer_than_the_model(engine):
    refusal = ask(engine, one_node("Gelu", [(FLOAT, [2])], [(FLOAT, [2])], opset=18))
    assert refusal is not None
    assert refusal.reason == "ai.onnx::Gelu is new in opset 20, and the model is of opset 18"


def test_absent_optional_inputs(engine):
    highest = numpy_helper.from_array(np.array(1, np.float32), "highest")
    node = helper.make_node("Clip", ["x", "", "highest"], ["y"], name="the_node")
    assert ask(engine, make_model([node], {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, initializers=[highest])) is None


def test_a_missing_or_broken_file(engine, tmp_path):
    with pytest.raises(InputError, match=r"absent\.onnx' does not exist"):
        engine.load(tmp_path / "absent.onnx")
    with pytest.raises(InputError, match="is a folder, not a model file"):
        engine.load(tmp_path)


# ONNX Runtime's own.


def test_names_and_close_matches():
    assert "onnxruntime" in engines.names()
    assert engines.get("onnxruntime") is engines.get("onnxruntime")
    with pytest.raises(InputError, match="There is no engine 'onnxruntim'") as caught:
        engines.get("onnxruntim")
    assert caught.value.fix == "did you mean 'onnxruntime'?"


def test_an_engine_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    native.runtime.cache_clear()
    try:
        engine = type(engines.get("onnxruntime"))()
        assert not engine.is_installed()
        with pytest.raises(EngineNotInstalledError, match="onnxruntime is not installed") as caught:
            _ = engine.version
        assert caught.value.fix == "pip install onnxruntime"
    finally:
        monkeypatch.undo()
        native.runtime.cache_clear()


@pytest.mark.parametrize("dtype", [DOUBLE, BFLOAT16])
def test_onnxruntime_lacks_types_of_conv(ort, dtype):
    name = {"DOUBLE": "float64", "BFLOAT16": "bfloat16"}[dtype]
    image = (dtype, [1, 3, 8, 8])
    refusal = ask(ort, one_node("Conv", [image, (dtype, [4, 3, 3, 3])], [(dtype, [1, 4, 6, 6])], opset=22))
    assert refusal is not None
    assert refusal.missing_dtypes == (name,)
    assert refusal.reason == f"no kernel for ai.onnx::Conv in opset 22 with T = {name} (there are: float32)"


def test_onnxruntime_inserts_casts_around_float16_which_its_kernel_list_does_not_say(ort):
    image = (FLOAT16, [1, 3, 8, 8])
    assert ask(ort, one_node("Conv", [image, (FLOAT16, [4, 3, 3, 3])], [(FLOAT16, [1, 4, 6, 6])])) is None


def test_onnxruntime_expands_operators_by_their_bodies(ort):
    tensor = ("BFLOAT16", [2])
    refusal = ask(ort, one_node("HardSwish", [tensor], [tensor], opset=22))
    assert refusal is not None
    assert refusal.reason.endswith("into which ONNX Runtime expands ai.onnx::HardSwish")


def test_onnxruntime_answers_equal_questions_once(ort, monkeypatch):
    from opbridge.engines.onnxruntime.builds import IsolatedBuild

    engine = type(ort)()
    assert engine.newest_ir_version >= 10
    sessions = []
    real = IsolatedBuild.refusal_of
    monkeypatch.setattr(IsolatedBuild, "refusal_of", lambda self, model: sessions.append(model) or real(self, model))
    for size in (2, 3, 2):
        assert ask(engine, one_node("Relu", [(FLOAT, [size, 7])], [(FLOAT, [size, 7])])) is None
    assert len(sessions) == 1
    assert ask(engine, one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])])) is None
    assert len(sessions) == 2


def test_onnxruntime_providers_and_threads(ort, tmp_path):
    path = identity(tmp_path, "FLOAT", [2])
    ort.load(path, threads=1, providers=["CPUExecutionProvider"])
    with pytest.raises(InputError, match="no execution provider 'CPUExecutionProvder'") as caught:
        ort.load(path, providers=["CPUExecutionProvder"])
    assert caught.value.fix == "did you mean 'CPUExecutionProvider'?"
    with pytest.raises(InputError, match="a list of execution providers is needed"):
        ort.load(path, providers="CPUExecutionProvider")
    with pytest.raises(InputError, match="at least one thread"):
        ort.load(path, threads=0)


def test_onnxruntime_refuses_a_model(ort, tmp_path):
    path = save(one_node("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"), tmp_path / "strange.onnx")
    with pytest.raises(EngineError, match=r"refuses 'strange\.onnx': .*mine:Frobnicate"):
        ort.load(path)


def test_float8_goes_through_unchanged(ort, tmp_path):
    array = np.array([1, -2, 0.5], ml_dtypes.float8_e4m3fn)
    session = ort.load(identity(tmp_path, "FLOAT8E4M3FN", [3]))
    assert np.array_equal(session.run({"x0": array})["y0"], array)


def test_strings(ort, tmp_path):
    session = ort.load(identity(tmp_path, "STRING", [2]))
    assert session.inputs[0].dtype == "str"
    assert session.run({"x0": np.array(["a", "bc"])})["y0"].tolist() == ["a", "bc"]
    with pytest.raises(InputError, match="takes dtype str, but got int64"):
        session.run({"x0": np.zeros(2, np.int64)})


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not\nfind it", "Could not find it"),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. Name:'n' Status "
            "Message: /a/onnxruntime/core/x.h:563 void onnxruntime::B::Init(ptrdiff_t, f(int)) const it was false.",
            "node 'n' (Add): it was false.",
        ),
        ("", "RuntimeError"),
    ],
)
def test_clean_message(text, cleaned):
    assert native.clean_message(RuntimeError(text)) == cleaned
