"""What is special to TVM: its table of converters, kernels as packed functions, and what it compiled before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from one_node import FLOAT, make_model, one_node, save, to_ir, value_info
from onnx import helper, numpy_helper
from places import SUPPORT

from opbridge import engines
from opbridge.engines.asked import AskedEngine
from opbridge.engines.passes import express_by_others
from opbridge.errors import EngineError, InputError
from opbridge.kernels.compiler import build
from opbridge.onnx_model.write import save_model

pytest.importorskip("tvm", reason="not run: apache-tvm is not installed")

from opbridge.engines.tvm import native

pytestmark = pytest.mark.newest

ENGINE = engines.get("tvm")
KERNELS = SUPPORT / "kernels"


@pytest.fixture(scope="module")
def library() -> Path:
    return build([KERNELS / name for name in ("my_add.h", "scale.h", "largest.h", "faults.h")])


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "expected"),
    [
        ("Softmax", [(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])], None),
        ("Abs", [("DOUBLE", [2])], [("DOUBLE", [2])], None),
        ("DeformConv", [(FLOAT, [1, 1, 3, 3])] * 3, [(FLOAT, [1, 1, 3, 3])], "no kernel for ai.onnx::DeformConv"),
        ("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], "no kernel for ai.onnx::Frobnicate"),
    ],
)
def test_each_node_is_compiled_alone_and_run(op_type, inputs, outputs, expected):
    model = to_ir(one_node(op_type, inputs, outputs))
    refusal = ENGINE.supports(model.graph[0], model.opset_imports)
    assert (refusal.reason if refusal is not None else None) == expected


def roi_align(sampling_ratio: int) -> onnx.ModelProto:
    """RoiAlign of boxes in an image that is four times as large as its features."""
    inputs = [(FLOAT, [1, 3, 20, 30]), (FLOAT, ["n", 4]), ("INT64", ["n"])]
    sizes = {"output_height": 3, "output_width": 3, "spatial_scale": 0.25, "sampling_ratio": sampling_ratio}
    return one_node("RoiAlign", inputs, [(FLOAT, ["n", 3, 3, 3])], coordinate_transformation_mode="half_pixel", **sizes)


def test_the_half_pixel_of_roi_align(tmp_path):
    """TVM subtracts it before it scales the boxes, not afterwards."""
    model = to_ir(roi_align(2))
    made = express_by_others.for_engine(model, ENGINE, [])
    assert made is not None
    result = made(model)
    assert [each.what for each in result.adaptations] == ["ai.onnx::RoiAlign becomes other operators"]
    save_model(model, tmp_path, name="scaled.onnx")
    start = np.random.default_rng(1).uniform(-8, 120, (30, 2))
    boxes = np.concatenate([start, start + np.random.default_rng(2).uniform(-5, 60, (30, 2))], 1).astype(np.float32)
    feeds = (array(1, 3, 20, 30), boxes, np.zeros(30, np.int64))
    original = save(roi_align(2), tmp_path / "original.onnx")
    (expected,) = engines.get("onnxruntime").load(original)(*feeds)
    np.testing.assert_allclose(ENGINE.load(tmp_path / "scaled.onnx")(*feeds)[0], expected, atol=1e-5)
    assert np.abs(ENGINE.load(original)(*feeds)[0] - expected).max() > 0.1


def test_roi_align_without_a_number_of_samples_is_refused():
    """A box without an area has no samples, and TVM divides by their number."""
    model = to_ir(roi_align(0))
    refusal = ENGINE.supports(model.graph[0], model.opset_imports)
    assert refusal is not None
    assert "zero for boxes without an area" in refusal.reason
    made = express_by_others.for_engine(model, ENGINE, [])
    assert made is not None
    assert not made(model).modified


def test_another_result_is_a_refusal(monkeypatch):
    results = AskedEngine.results
    monkeypatch.setattr(
        AskedEngine,
        "results",
        lambda self, model, feeds: {
            name: array + (self._name != "onnxruntime") for name, array in results(self, model, feeds).items()
        },
    )
    model = to_ir(one_node("Sigmoid", [(FLOAT, [5])], [(FLOAT, [5])]))
    refusal = type(ENGINE)().supports(model.graph[0], model.opset_imports)
    assert refusal is not None
    assert "computes another result: it is off by 1 where results reach 1" in refusal.reason


def test_the_private_table_of_converters(monkeypatch):
    """``_get_convert_map``: what it must be, and that it is as before once a model is imported."""
    assert {"Conv", "If", "Constant"} <= native.converted_operators()
    assert "Frobnicate" not in native.converted_operators()
    frontend = native._frontend()
    table = frontend._get_convert_map
    native.import_onnx(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]), {"Extra": None})
    assert frontend._get_convert_map is table
    monkeypatch.delattr(frontend, "_get_convert_map")
    with pytest.raises(EngineError, match=r"does not know the ONNX frontend of TVM .*: it has no table of converters"):
        native._frontend()


def test_a_kernel_between_operators_of_its_own_sizes(library, tmp_path):
    """A name of a size is one variable: what the kernel gives is added to what it took."""
    bias = numpy_helper.from_array(array(4, 1), "b")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("my_add", ["r", "b"], ["k"], name="kernel", domain="mylib", alpha=3.0),
        helper.make_node("Sub", ["k", "r"], ["y"]),
    ]
    types = (FLOAT, ["n", 4, "m"])
    model = make_model(nodes, {"x": types}, {"y": types}, initializers=[bias], domains=["mylib"])
    model.graph.value_info.append(value_info("k", types))
    path = save(model, tmp_path / "model.onnx")
    files = [file.name for file in ENGINE.compile_model(path, [library])]
    assert files == ["model.tvm.json", "model.tvm.so"]
    session = ENGINE.load(path, libraries=[library], threads=1)
    for sizes in ((2, 4, 5), (1, 4, 7)):
        x = array(*sizes)
        np.testing.assert_allclose(session(x)[0], 2 * np.maximum(x, 0) + array(4, 1), atol=1e-6)
    with pytest.raises(EngineError, match="calls the kernel of mylib::my_add, at node 'kernel', but no library"):
        ENGINE.load(path)


def test_sizes_that_only_the_kernel_knows_and_an_output_that_is_left_out(library, tmp_path):
    node = helper.make_node("largest", ["x"], ["", "i"], name="kernel", domain="mylib", axis=0)
    negated = helper.make_node("Neg", ["i"], ["y"])
    model = make_model([node, negated], {"x": ("INT32", ["n", "m"])}, {"y": ("INT64", ["rest"])}, domains=["mylib"])
    model.graph.value_info.append(value_info("i", ("INT64", ["rest"])))
    x = np.array([[1, 9, 2], [5, 0, 7]], np.int32)
    (result,) = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])(x)
    assert result.tolist() == [-1, 0, -1]


def test_an_optional_input_that_is_left_out(library, tmp_path):
    model = one_node("scale", [(FLOAT, ["n", 3]), (FLOAT, []), None], [(FLOAT, ["n", 3])], domain="mylib")
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    x = array(2, 3)
    assert np.array_equal(session(x, np.array(3, np.float32))[0], x * 3)


def test_a_kernel_that_fails_is_named_and_the_session_goes_on(library, tmp_path):
    model = one_node("faults", [(FLOAT, [3])], [(FLOAT, [3])], domain="mylib", how="check")
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    for _ in range(2):
        with pytest.raises(EngineError, match=r"A kernel failed in TVM: mylib::faults: expected 3, got sizes \(3,\)"):
            session(array(3))


def test_an_operator_of_no_standard_without_a_kernel(tmp_path):
    # The frontend looks at names alone: it would take this for the standard's Relu.
    path = save(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"), tmp_path / "model.onnx")
    with pytest.raises(EngineError, match="TVM has no operator mine::Relu, which node 'the_node' is"):
        ENGINE.load(path)


def test_a_model_that_another_version_compiled_is_compiled_again(tmp_path):
    path = save(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]), tmp_path / "model.onnx")
    description, code = ENGINE.compile_model(path, [])
    code.write_bytes(b"no library")
    with pytest.raises(EngineError, match=r"can't load model\.tvm\.so"):
        ENGINE.load(path)
    description.write_text(json.dumps({**json.loads(description.read_bytes()), "tvm": "0.1"}))
    assert ENGINE.load(path)(np.array([-1, 2], np.float32))[0].tolist() == [0, 2]
    description.write_text("{")
    with pytest.raises(InputError, match=r"model\.tvm\.json, which describes the compiled model, is damaged"):
        ENGINE.load(path)


def test_a_second_model_in_the_same_file(tmp_path):
    sessions = []
    for op_type, expected in (("Relu", [0, 2]), ("Neg", [1, -2])):
        folder = tmp_path / op_type
        folder.mkdir()
        path = save(one_node(op_type, [(FLOAT, [2])], [(FLOAT, [2])]), folder / "model.onnx")
        for made in (path, *ENGINE.compile_model(path, [])):
            made.replace(tmp_path / made.name)
        sessions.append(ENGINE.load(tmp_path / "model.onnx"))
        assert sessions[-1](np.array([-1, 2], np.float32))[0].tolist() == expected


def test_a_tensor_of_sizes_is_an_output(tmp_path):
    path = save(one_node("Shape", [(FLOAT, ["n", 2])], [("INT64", [2])]), tmp_path / "model.onnx")
    (result,) = ENGINE.load(path, threads=1)(array(3, 2))
    assert result.dtype == np.int64
    assert result.tolist() == [3, 2]
