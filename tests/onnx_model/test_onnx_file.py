"""``save_model`` against onnx.checker, ONNX Runtime and onnx_ir: the same model, whatever its weights are."""

import tracemalloc

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from opbridge.onnx_model import write as onnx_write
from opbridge.onnx_model.infer import with_types
from opbridge.onnx_model.write import save_model

pytestmark = pytest.mark.newest


def _int4(values: np.ndarray) -> ir.Tensor:
    return ir.Tensor(values.astype(ml_dtypes.int4), dtype=ir.DataType.INT4)


WEIGHTS = {
    "float32": np.arange(600, dtype=np.float32).reshape(20, 30),
    "float64": np.linspace(-1, 1, 300).reshape(3, 100),
    "float16": np.linspace(-1, 1, 1024).astype(np.float16),
    "bfloat16": np.linspace(-1, 1, 1024).astype(ml_dtypes.bfloat16),
    "float8": np.linspace(-1, 1, 2048).astype(ml_dtypes.float8_e4m3fn),
    "int64": np.arange(-200, 200),
    "uint8": np.arange(2000, dtype=np.uint8),
    "bool": np.arange(1500) % 3 == 0,
    "complex64": np.linspace(-1, 1, 300).astype(np.complex64),
    "int4": _int4(np.arange(4096) % 16 - 8),
    "int4 of odd size": _int4(np.arange(4095) % 16 - 8),
    "string": ir.StringTensor(np.array([b"word"] * 500, dtype=object), shape=ir.Shape([500])),
    "empty": np.zeros((0, 7), np.float32),
    "scalar": np.array(3.5, np.float32),
    "one byte": np.array([1], np.uint8),
    "just below the limit": np.arange(255, dtype=np.float32),
    "at the limit": np.arange(256, dtype=np.float32),
    "transposed": np.arange(600, dtype=np.float32).reshape(20, 30).T,
    "every other": np.arange(1200, dtype=np.float32)[::2],
}


def _model(weights: dict[str, ir.TensorProtocol]) -> ir.Model:
    """One output per weight, each an Identity of it, and an input that is added to itself."""
    x = ir.Value(name="x", shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.FLOAT))
    total = ir.node("Add", [x, x])
    nodes, values = [total], []
    total.outputs[0].name, total.outputs[0].type, total.outputs[0].shape = "sum", x.type, x.shape
    for position, tensor in enumerate(weights.values()):
        kind = ir.TensorType(tensor.dtype)
        value = ir.Value(name=f"w{position}", shape=ir.Shape(tensor.shape), type=kind, const_value=tensor)
        node = ir.node("Identity", [value])
        node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = f"y{position}", kind, value.shape
        nodes.append(node)
        values.append(value)
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph([x], outputs, nodes=nodes, initializers=values, opset_imports={"": 21}, name="weights")
    return ir.Model(graph, ir_version=10, producer_name="opbridge")


def _one(name: str) -> ir.Model:
    weight = WEIGHTS[name]
    return _model({name: weight if not isinstance(weight, np.ndarray) else ir.tensor(weight)})


def _values(tensor: ir.TensorProtocol) -> list:
    return tensor.numpy().reshape(-1).tolist()


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("external", [False, True])
def test_every_kind_of_weight_is_written_as_it_is(tmp_path, name, external):
    model = _one(name)
    before = model.graph.initializers["w0"].const_value
    save_model(model, tmp_path, external_data=external)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    found = ir.load(tmp_path / "model.onnx").graph.initializers["w0"].const_value
    assert (found.dtype, list(found.shape)) == (before.dtype, list(before.shape))
    assert _values(found) == _values(before)
    assert model.graph.initializers["w0"].const_value is before


@pytest.mark.parametrize("external", [False, True])
def test_the_engine_reads_the_weights(tmp_path, external):
    kept = {name: value for name, value in WEIGHTS.items() if name in ("float32", "int64", "transposed", "bool")}
    save_model(_model({name: ir.tensor(value) for name, value in kept.items()}), tmp_path, external_data=external)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(results[0], [2, 2])
    for found, expected in zip(results[1:], kept.values(), strict=True):
        np.testing.assert_array_equal(found, expected)


def _all() -> ir.Model:
    tensors = {name: ir.tensor(value) if isinstance(value, np.ndarray) else value for name, value in WEIGHTS.items()}
    return _model(tensors)


@pytest.mark.parametrize("external", [False, True])
def test_the_same_model_gives_the_same_bytes(tmp_path, external):
    contents = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        save_model(_all(), folder, external_data=external)
        contents.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert contents[0] == contents[1]
    assert set(contents[0]) == ({"model.onnx", "model.onnx.data"} if external else {"model.onnx"})


def test_the_file_says_what_onnx_itself_would_have_written(tmp_path):
    model = _one("float32")
    model.graph.doc_string, model.metadata_props["author"] = "a graph", "someone"
    model.functions[("local", "Twice", "")] = _function()
    model.opset_imports["local"] = 1
    save_model(model, tmp_path)
    assert onnx.load(tmp_path / "model.onnx") == ir.to_proto(model)


def _function() -> ir.Function:
    x = ir.Value(name="x")
    node = ir.node("Add", [x, x])
    node.outputs[0].name = "y"
    graph = ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 21}, name="Twice")
    return ir.Function("local", "Twice", graph=graph, attributes=[])


def test_weights_above_the_limit_get_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_write, "LARGEST_FILE", 2399)
    save_model(_one("float32"), tmp_path, name="large.onnx")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "large.onnx"))
    assert _values(ir.load(tmp_path / "large.onnx").graph.initializers["w0"].const_value) == list(range(600))


def test_weights_at_the_limit_stay_in_the_file_and_so_do_all_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_write, "LARGEST_FILE", 2400)
    save_model(_one("float32"), tmp_path)
    monkeypatch.setattr(onnx_write, "LARGEST_FILE", 100)
    save_model(_one("float32"), tmp_path, name="on_request.onnx", external_data=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "on_request.onnx"]


@pytest.mark.parametrize("external", [False, True])
def test_writing_holds_no_second_copy_of_the_weights(tmp_path, external):
    weight = np.zeros(16 << 20, np.uint8)
    model = _model({"zeros": ir.tensor(weight)})
    tracemalloc.start()
    try:
        save_model(model, tmp_path, external_data=external)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < weight.nbytes / 4


def test_an_error_leaves_the_model_unchanged(tmp_path):
    model = _one("float32")
    before = model.graph.initializers["w0"].const_value
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save_model(model, tmp_path / "nowhere")
    assert model.graph.initializers["w0"].const_value is before


class _Untouchable(ir.Tensor):
    """A weight whose bytes nobody may ask for."""

    def numpy(self):
        raise AssertionError("the weight's values were read")

    tobytes = numpy


def test_shape_inference_does_not_read_large_weights():
    weight = _Untouchable(np.zeros((64, 64), np.float32))
    model = _model({"large": weight})
    model.graph.outputs[1].type = model.graph.outputs[1].shape = None
    inferred = with_types(model).graph.outputs[1]
    assert (inferred.dtype, list(inferred.shape)) == (ir.DataType.FLOAT, [64, 64])
    assert model.graph.initializers["w0"].const_value is weight
