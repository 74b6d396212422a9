"""opbridge.load on bundles and plain models."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from one_node import FLOAT, make_model, one_node, save
from onnx import helper, numpy_helper

import opbridge
from opbridge import engines
from opbridge.bundle.write import write_bundle
from opbridge.errors import EngineError, InputError

RELU = one_node("Relu", [(FLOAT, ["n"])], [(FLOAT, ["n"])])
X = np.array([-1, 2], np.float32)
SPEC = {"dtype": "float32", "shape": ["n"]}


@pytest.fixture
def bundle(tmp_path):
    manifest = {
        "entry": None,
        "versions": {},
        "models": [{"file": "model.onnx", "engines": ["onnxruntime"], "opset": 20, "ir_version": 10}],
        "inputs": [{"name": "x0", **SPEC}],
        "outputs": [{"name": "y0", **SPEC}],
        "operators": [],
        "opset_reason": "",
        "weights": None,
        "dynamic": {},
    }
    write_bundle(tmp_path / "relu", manifest, lambda folder: save(RELU, folder / "model.onnx") and None)
    return tmp_path / "relu"


def with_external_data(folder):
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT, [1, 64])},
        {"y": (FLOAT, [1, 64])},
        initializers=[weight],
    )
    path = folder / "large.onnx"
    onnx.save(model, path, save_as_external_data=True, location="large.onnx.data", size_threshold=0)
    return path


def test_a_bundle(bundle):
    session = opbridge.load(bundle)
    assert session.run({"x0": X})["y0"].tolist() == [0, 2]
    assert [spec.name for spec in session.inputs] == ["x0"]


def test_a_plain_model_by_string_or_path(tmp_path):
    path = save(RELU, tmp_path / "relu.onnx")
    for place in (path, str(path)):
        assert opbridge.load(place, engine="onnxruntime", threads=1)(X)[0].tolist() == [0, 2]


def test_external_data_is_found_beside_the_model(tmp_path):
    (result,) = opbridge.load(with_external_data(tmp_path))(np.ones((1, 64), np.float32))
    assert np.array_equal(result, np.full((1, 64), 64, np.float32))


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_damaged_external_data(tmp_path, damage):
    path = with_external_data(tmp_path)
    data = tmp_path / "large.onnx.data"
    data.unlink() if damage == "missing" else data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(InputError, match=r"external data of 'large\.onnx' is missing or truncated"):
        opbridge.load(path)


def test_a_bundle_that_was_tampered_with(bundle):
    content = bytearray((bundle / "model.onnx").read_bytes())
    content[-1] ^= 1
    (bundle / "model.onnx").write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"model\.onnx"):
        opbridge.load(bundle)


def test_a_folder_that_is_no_bundle(tmp_path):
    with pytest.raises(InputError, match=r"bundle\.json"):
        opbridge.load(tmp_path)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"There is no bundle or model at .*absent\.onnx'"):
        opbridge.load(tmp_path / "absent.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"just text, no model\n" * 20, RELU.SerializeToString()[:40]], ids=["empty", "text", "truncated"]
)
def test_no_onnx(tmp_path, content):
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(InputError, match=r"'model\.onnx' is not an ONNX model, or is truncated") as caught:
        opbridge.load(tmp_path / "model.onnx")
    assert caught.value.fix == "export or download it again."


def test_a_model_the_engine_refuses(tmp_path):
    path = save(one_node("Frob", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"), tmp_path / "strange.onnx")
    with pytest.raises(EngineError, match=r"ONNX Runtime .* refuses 'strange\.onnx'"):
        opbridge.load(path)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "reference"])
def test_a_negative_size_is_an_unknown_one(tmp_path, engine):
    pytest.importorskip({"reference": "onnx"}.get(engine, engine), reason=f"not run: needs {engine}")
    path = save(one_node("Relu", [(FLOAT, [-1, 3])], [(FLOAT, [-1, 3])]), tmp_path / "relu.onnx")
    session = opbridge.load(path, engine)
    assert session.inputs[0].shape[1] == 3
    assert isinstance(session.inputs[0].shape[0], str)
    assert session(np.ones((2, 3), np.float32))[0].shape == (2, 3)


def test_an_unknown_engine(tmp_path):
    with pytest.raises(InputError, match="There is no engine 'onnx_runtime'") as caught:
        opbridge.load(save(RELU, tmp_path / "relu.onnx"), engine="onnx_runtime")
    assert caught.value.fix == "did you mean 'onnxruntime'?"


def test_an_engine_that_takes_no_onnx(tmp_path, monkeypatch):
    monkeypatch.setattr(type(engines.get("onnxruntime")), "accepts", "exported_program")
    with pytest.raises(InputError, match=r"onnxruntime does not load ONNX files like 'relu\.onnx'"):
        opbridge.load(save(RELU, tmp_path / "relu.onnx"))


def test_it_needs_neither_torch_nor_onnx(bundle):
    program = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnx_ir', 'onnxscript', 'rich'): sys.modules[name] = None\n"
        "import numpy as np, opbridge\n"
        f"print(opbridge.load({str(bundle)!r})(np.ones(2, np.float32))[0].tolist())\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.stdout == "[1.0, 1.0]\n", result.stderr
