"""Products of 8-bit integers, which ONNX Runtime and OpenVINO compute with saturation on some processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx_ir as ir  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from opbridge import engines  # noqa: E402
from opbridge.engines.asked import AskedEngine  # noqa: E402
from opbridge.engines.passes.unsigned_weights import UnsignedWeightsPass, for_engine  # noqa: E402
from opbridge.ladder.adapt import adapt  # noqa: E402

RANDOM = np.random.default_rng(0)
IMAGE, ROWS = (2, 4, 5, 5), (6, 16)


def bytes_of(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Mostly large numbers, whose products do not fit into 16 bits."""
    low, high = (0, 256) if dtype == np.uint8 else (-128, 128)
    values = RANDOM.integers(low, high, shape)
    return np.where(RANDOM.random(shape) < 0.5, high - 1, values).astype(dtype)


def model_of(nodes: Sequence[Any], data: np.ndarray, **constants: Any) -> onnx.ModelProto:
    """A model of the input x with the output y."""
    dtype = helper.np_dtype_to_tensor_dtype(data.dtype)
    is_integer = nodes[-1].op_type.endswith("Integer")
    result = onnx.TensorProto.INT32 if is_integer else onnx.TensorProto.FLOAT
    if nodes[-1].op_type.startswith("QLinear"):
        result = onnx.TensorProto.UINT8
    graph = helper.make_graph(
        list(nodes),
        "products",
        [helper.make_tensor_value_info("x", dtype, data.shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def node(op_type: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, ["" if name == "_" else name for name in inputs.split()], [output], **attributes)


def dequantized(product: onnx.NodeProto, data: np.ndarray, weights: np.ndarray, kind: Any, **scales: Any) -> Any:
    """A product of a tensor that is rounded to ``kind`` and of int8 weights."""
    axis = {} if np.ndim(scales["ws"]) == 0 else {"axis": 0}
    zero = "wz" if "wz" in scales else ""
    steps = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", f"w ws {zero}".strip(), "v", **axis),
        product,
    ]
    return data, model_of(steps, data, w=weights, s=np.float32(0.02), z=kind(3), **scales)


def floats(shape: Sequence[int]) -> np.ndarray:
    return RANDOM.uniform(-4, 6, shape).astype(np.float32)


BY_CHANNEL = np.float32([0.01, 0.02, 0.03])
CASES: dict[str, Callable[[], Any]] = {
    "matrix": lambda: dequantized(
        node("MatMul", "d v", "y"),
        floats(ROWS),
        bytes_of((16, 3), np.int8),
        np.uint8,
        ws=np.float32(0.01),
        wz=np.int8(2),
    ),
    "matrix by channel": lambda: dequantized(
        node("Gemm", "d v", "y", transB=1), floats(ROWS), bytes_of((3, 16), np.int8), np.uint8, ws=BY_CHANNEL
    ),
    "int8 and int8": lambda: dequantized(
        node("Gemm", "d v", "y", transB=1), floats(ROWS), bytes_of((3, 16), np.int8), np.int8, ws=BY_CHANNEL
    ),
    "convolution": lambda: dequantized(
        node("Conv", "d v", "y"), floats(IMAGE), bytes_of((3, 4, 3, 3), np.int8), np.uint8, ws=BY_CHANNEL
    ),
    "MatMulInteger": lambda: (
        data := bytes_of(ROWS, np.uint8),
        model_of([node("MatMulInteger", "x w z", "y")], data, w=bytes_of((16, 3), np.int8), z=np.uint8(5)),
    ),
    "ConvInteger": lambda: (
        data := bytes_of(IMAGE, np.uint8),
        model_of([node("ConvInteger", "x w", "y")], data, w=bytes_of((3, 4, 3, 3), np.int8)),
    ),
    "QLinearMatMul": lambda: (
        data := bytes_of(ROWS, np.uint8),
        model_of(
            [node("QLinearMatMul", "x s z w s wz ys z", "y")],
            data,
            w=bytes_of((16, 3), np.int8),
            s=np.float32(0.01),
            z=np.uint8(7),
            wz=np.int8(0),
            ys=np.float32(1.5),
        ),
    ),
    "QLinearConv": lambda: (
        data := bytes_of(IMAGE, np.uint8),
        model_of(
            [node("QLinearConv", "x s z w ws wz ys z", "y")],
            data,
            w=bytes_of((3, 4, 3, 3), np.int8),
            s=np.float32(0.01),
            z=np.uint8(7),
            ws=BY_CHANNEL,
            wz=np.zeros(3, np.int8),
            ys=np.float32(1.5),
        ),
    ),
}


def reference(proto: onnx.ModelProto, data: np.ndarray) -> np.ndarray:
    (found,) = ReferenceEvaluator(proto).run(None, {"x": data})
    return np.asarray(found)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_the_same_and_no_tensor_is_int8(name: str) -> None:
    data, proto = CASES[name]()
    expected = reference(proto, data)
    result = UnsignedWeightsPass()(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))
    assert result.modified
    assert [len(one.nodes) for one in result.adaptations] == [1]
    written = ir.to_proto(result.model)
    onnx.checker.check_model(written, full_check=True)
    assert {one.data_type for one in written.graph.initializer} <= {onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8}
    np.testing.assert_allclose(reference(written, data), expected, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_computes_the_adapted_model_right(name: str) -> None:
    data, proto = CASES[name]()
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    adapted, _ = adapt(model, engines.get("onnxruntime"))
    session = onnxruntime.InferenceSession(ir.to_proto(adapted).SerializeToString())
    (found,) = session.run(None, {"x": data})
    # A number halfway between two integers may be rounded to either.
    step = 1 if found.dtype == np.uint8 else 0
    np.testing.assert_allclose(found.astype(np.float64), reference(proto, data), rtol=1e-5, atol=max(step, 1e-4))


def test_openvino_computes_the_adapted_model_right() -> None:
    openvino = pytest.importorskip("openvino")
    data, proto = CASES["matrix by channel"]()
    adapted, _ = adapt(ir.from_proto(onnx.shape_inference.infer_shapes(proto)), engines.get("openvino"))
    core = openvino.Core()
    found = core.compile_model(core.read_model(ir.to_proto(adapted).SerializeToString()), "CPU")([data])[0]
    np.testing.assert_allclose(found, reference(proto, data), rtol=1e-5, atol=1e-4)


def test_an_engine_is_asked_only_about_a_model_with_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AskedEngine, "results", lambda *_: pytest.fail("asked"))
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[n] x) => (float[n] y) { y = Relu(x) }'
    assert for_engine(ir.from_onnx_text(text), engines.get("onnxruntime"), ()) is None


def test_tensors_that_leave_the_graph_keep_their_type() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[4, 4] x) => (int8[4, 4] q, float[4, 4] y)
        <float s = {0.1}, int8 z = {0}> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        y = MatMul(d, d) }"""
    assert not UnsignedWeightsPass()(ir.from_onnx_text(text)).modified


def test_a_constant_with_two_users_is_written_once() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 2] x) => (float[2, 2] y)
        <float s = {0.1}, uint8 z = {0}, int8[2, 2] w = {1, -2, 3, -4}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        v1 = DequantizeLinear(w, s) v2 = DequantizeLinear(w, s) a = MatMul(d, v1) b = MatMul(d, v2) y = Add(a, b) }"""
    result = UnsignedWeightsPass()(ir.from_onnx_text(text))
    assert result.modified
    arrays = [value.const_value for value in result.model.graph.initializers.values()]
    weights = [array.numpy() for array in arrays if array is not None and array.shape == (2, 2)]
    assert [one.tolist() for one in weights] == [[[129, 126], [131, 124]]]


def test_128_is_added_to_a_factor_that_the_model_computes() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (uint8[2, 3] x, int8[3, 2] w) => (int32[2, 2] y)
        <uint8 z = {5}> { v = Abs(w) y = MatMulInteger(x, v, z) }"""
    x, w = np.uint8([[255, 255, 0], [3, 200, 9]]), np.int8([[127, -127], [127, 2], [-3, 4]])
    result = UnsignedWeightsPass()(ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))))
    (product,) = [one for one in result.model.graph if one.op_type == "MatMulInteger"]
    assert [one.dtype for one in product.inputs if one is not None] == [ir.DataType.UINT8] * 4
    (found,) = ReferenceEvaluator(ir.to_proto(result.model)).run(None, {"x": x, "w": w})
    np.testing.assert_array_equal(found, (x.astype(np.int32) - 5) @ np.abs(w.astype(np.int32)))


def test_a_scale_of_unknown_shape_is_left() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 2] x, float[n] scales) => (float[2, 2] y)
        <float s = {0.1}, uint8 z = {0}, int8[2, 2] w = {1, -2, 3, -4}> {
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
        v = DequantizeLinear <axis = 0> (w, scales) y = MatMul(d, v) }"""
    assert not UnsignedWeightsPass()(ir.from_onnx_text(text)).modified
