"""What is special to ncnn: what pnnx misreads, kernels behind flat tensors, and what ncnn has no tensors for."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from one_node import FLOAT, make_model, one_node, save, to_ir, value_info
from onnx import helper, numpy_helper
from places import SUPPORT

import opbridge
from opbridge import engines
from opbridge.engines.asked import AskedEngine
from opbridge.engines.probe import probe
from opbridge.errors import EngineError, EngineNotInstalledError, InputError
from opbridge.kernels.compiler import build
from opbridge.ladder.adapt import adapt

pytest.importorskip("ncnn")
pytest.importorskip("pnnx")

pytestmark = pytest.mark.newest

ENGINE = engines.get("ncnn")
KERNELS = SUPPORT / "kernels"
ADDITION = """
import torch, opbridge
@opbridge.operator("engine_ncnn::my_add")
def my_add(a: torch.Tensor, b: torch.Tensor, alpha: float = 2.0) -> torch.Tensor:
    return alpha * a + b
my_add.kernel("my_add.h")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
    def forward(self, x):
        y = self.conv(x)
        return torch.relu(my_add(y, y.mean(1, keepdim=True), 3.0))
def entry():
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(2, 3, 6, 6),)
"""


@pytest.fixture(scope="module")
def library() -> Path:
    return build([KERNELS / name for name in ("my_add.h", "scale.h", "largest.h", "faults.h")])


def reason(op_type: str, inputs, outputs, **attributes) -> str | None:
    model = to_ir(one_node(op_type, inputs, outputs, **attributes))
    refusal = ENGINE.supports(model.graph[0], model.opset_imports)
    assert refusal is None or refusal.node == "the_node"
    return None if refusal is None else refusal.reason


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def reference(model, feeds, tmp_path) -> list[np.ndarray]:
    session = engines.get("onnxruntime").load(save(model, tmp_path / "reference.onnx"), threads=1)
    return list(session.run(feeds).values())


# What it takes.


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "expected"),
    [
        ("Softmax", [(FLOAT, [2, 3])], [(FLOAT, [2, 3])], None),
        ("Abs", [(FLOAT, ["n", 3])], [(FLOAT, ["n", 3])], None),
        ("ArgMax", [(FLOAT, [2, 3])], [("INT64", [1, 3])], "has no layer ArgMax ('ArgMax_0'), which pnnx leaves"),
        ("Greater", [(FLOAT, [2]), (FLOAT, [2])], [("BOOL", [2])], "has no layer torch.gt"),
        ("Add", [("INT64", [2]), ("INT64", [2])], [("INT64", [2])], "computes another result: it is off by"),
        ("Relu", [("DOUBLE", [2])], [("DOUBLE", [2])], "computes in float32, not in float64"),
        ("Relu", [(FLOAT, [1] * 6)], [(FLOAT, [1] * 6)], "takes 4 dimensions and a batch, not rank 6"),
        ("Frobnicate", [(FLOAT, [2])], [(FLOAT, [2])], "no kernel for ai.onnx::Frobnicate"),
    ],
)
def test_each_node_is_converted_alone_and_run(op_type, inputs, outputs, expected):
    found = reason(op_type, inputs, outputs)
    assert (found is None) == (expected is None)
    assert expected is None or expected in found


def test_equal_questions_are_asked_once(monkeypatch):
    asked = []
    real = AskedEngine.results
    monkeypatch.setattr(AskedEngine, "results", lambda self, *given: asked.append(self._name) or real(self, *given))
    for _ in range(2):
        assert reason("Sigmoid", [(FLOAT, [2, 7])], [(FLOAT, [2, 7])]) is None
    assert len(asked) == 2  # ncnn, and whom it is held against.


def test_control_flow_is_refused():
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "branch", [], [value_info("r", (FLOAT, [2]))])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch)
    model = to_ir(make_model([node], {"c": ("BOOL", []), "x": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    refusal = ENGINE.supports(model.graph[0], model.opset_imports)
    assert refusal is not None
    assert refusal.reason.endswith("has no control flow")


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(("shape", "axis", "keepdims"), [([2, 3], 1, 0), ([2, 3, 4, 5], -3, 1)])
def test_a_reduction_over_one_axis_of_which_pnnx_loses_count(tmp_path, shape, axis, keepdims):
    axes = numpy_helper.from_array(np.array([axis]), "axes")
    out = list(array(*shape).mean(axis, keepdims=bool(keepdims)).shape)
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], name="average", keepdims=keepdims),
        helper.make_node("Relu", ["m"], ["y"]),
    ]
    proto = make_model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, out)}, initializers=[axes])
    proto.graph.value_info.append(value_info("m", (FLOAT, out)))
    model = to_ir(proto)
    assert [refusal.node for refusal in probe(model, ENGINE)] == ["average"]
    adapted, adaptations = adapt(model, ENGINE)
    assert [(one.what, one.nodes) for one in adaptations] == [
        ("a reduction over one axis is one over two, one of them of size 1", ("average",))
    ]
    assert probe(adapted, ENGINE) == ()
    feeds = {"x": array(*shape)}
    (result,) = ENGINE.load(save(adapted, tmp_path / "model.onnx"), threads=1).run(feeds).values()
    np.testing.assert_allclose(result, reference(proto, feeds, tmp_path)[0], atol=1e-6)


# Kernels.


@pytest.mark.parametrize("batch", [2, "batch"])
def test_a_kernel_between_layers_that_see_a_batch(library, tmp_path, batch):
    weight = numpy_helper.from_array(array(4, 3, 3, 3), "w")
    bias = numpy_helper.from_array(array(4, 1, 1), "b")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("my_add", ["c", "b"], ["k"], name="kernel", domain="mylib", alpha=3.0),
        helper.make_node("MaxPool", ["k"], ["y"], kernel_shape=[2, 2]),
    ]
    model = make_model(
        nodes,
        {"x": (FLOAT, [batch, 3, 6, 6])},
        {"y": (FLOAT, [batch, 4, 3, 3])},
        initializers=[weight, bias],
        domains=["mylib"],
    )
    model.graph.value_info.append(value_info("k", (FLOAT, [batch, 4, 4, 4])))
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    nodes[1:2] = [
        helper.make_node("Mul", ["c", "three"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["k"]),
    ]
    three = numpy_helper.from_array(np.array(3, np.float32), "three")
    plain = make_model(
        nodes, {"x": (FLOAT, [batch, 3, 6, 6])}, {"y": (FLOAT, [batch, 4, 3, 3])}, initializers=[weight, bias, three]
    )
    for size in (2,) if batch == 2 else (2, 1, 5):
        feeds = {"x": array(size, 3, 6, 6)}
        np.testing.assert_allclose(session.run(feeds)["y"], reference(plain, feeds, tmp_path)[0], atol=1e-4)


def test_two_outputs_one_of_them_int64_and_any_length(library, tmp_path):
    model = one_node("largest", [(FLOAT, [3, "n"])], [(FLOAT, [3]), ("INT64", [3])], domain="mylib", axis=1)
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    for length in (4, 9):
        x = array(3, length)
        values, indices = session(x)
        assert np.array_equal(values, x.max(1))
        assert np.array_equal(indices, x.argmax(1))
        assert indices.dtype == np.int64


@pytest.mark.parametrize("used", [0, 1])
def test_a_result_that_nothing_reads(library, tmp_path, used):
    outputs = ["values", "indices"]
    kind = FLOAT if used == 0 else "INT64"
    node = helper.make_node("largest", ["x"], outputs, domain="mylib", axis=1)
    model = make_model([node], {"x": (FLOAT, [3, 5])}, {outputs[used]: (kind, [3])}, domains=["mylib"])
    model.graph.value_info.append(value_info(outputs[1 - used], ("INT64" if used == 0 else FLOAT, [3])))
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    x = array(3, 5)
    assert np.array_equal(session(x)[0], x.max(1) if used == 0 else x.argmax(1))


def test_rank_0_and_an_optional_input_that_is_left_out(library, tmp_path):
    model = one_node("scale", [(FLOAT, [1, 2, 2, 3]), (FLOAT, []), None], [(FLOAT, [1, 2, 2, 3])], domain="mylib")
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    x = array(1, 2, 2, 3)
    (result,) = session(x, np.array(3, np.float32))
    assert np.array_equal(result, x * 3)


def test_a_kernel_that_fails_is_named_and_the_session_goes_on(library, tmp_path):
    model = one_node("faults", [(FLOAT, [3])], [(FLOAT, [3])], domain="mylib", how="check")
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    for _ in range(2):
        with pytest.raises(EngineError, match=r"A kernel failed in ncnn: .*expected 3, got sizes \(3,\) and 2\.5"):
            session(array(3))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("DOUBLE", [2]), "at node 'the_node': its input 0 is float64, and ncnn computes in float32"),
        ((FLOAT, ["a", "b"]), r"its input 0 has more than one dynamic dimension, \[a, b\]"),
        (("FLOAT16", [2]), "its input 0 is float16"),
    ],
)
def test_tensors_that_ncnn_hands_to_no_kernel(library, tmp_path, typed, message):
    model = one_node("my_add", [typed, typed], [typed], domain="mylib")
    with pytest.raises(EngineError, match=f"can't run the kernel of mylib::my_add .*{message}") as caught:
        ENGINE.load(save(model, tmp_path / "model.onnx"), libraries=[library])
    assert caught.value.fix


def test_a_kernel_without_its_library(library, tmp_path):
    path = save(one_node("my_add", [(FLOAT, [2])] * 2, [(FLOAT, [2])], domain="mylib"), tmp_path / "model.onnx")
    with pytest.raises(EngineError, match="ncnn has no operator mylib::my_add, which node 'the_node' is"):
        ENGINE.load(path)
    names = [file.name for file in ENGINE.compile_model(path, [library])]
    assert names == ["model.ncnn.json", "model.ncnn.param", "model.ncnn.bin"]
    with pytest.raises(EngineError, match="ncnn's model calls the kernel of mylib::my_add, at node 'the_node'"):
        ENGINE.load(path)


def test_the_binding_has_ten_nets_with_layers_of_its_own(library, tmp_path):
    path = save(one_node("my_add", [(FLOAT, [2])] * 2, [(FLOAT, [2])], domain="mylib"), tmp_path / "model.onnx")
    ENGINE.compile_model(path, [library])
    for _ in range(11):
        ENGINE.load(path, libraries=[library], threads=1)
    held = []
    with pytest.raises(EngineError, match="allows 10 nets with kernels at once in a process"):
        held += [ENGINE.load(path, libraries=[library], threads=1) for _ in range(11)]


@pytest.mark.parametrize(("groups", "offset_groups", "mask"), [(1, 1, True), (2, 1, False), (1, 2, True), (2, 4, True)])
def test_deformable_convolution_by_ncnns_own_layer(tmp_path, groups, offset_groups, mask):
    image, offset, out = (FLOAT, [2, 4, 5, 6]), (FLOAT, [2, offset_groups * 12, 4, 5]), (FLOAT, [2, 6, 4, 5])
    weight = numpy_helper.from_array(array(6, 4 // groups, 3, 2), "w")
    bias = numpy_helper.from_array(array(6), "b")
    inputs = {"x": image, "o": offset, **({"m": (FLOAT, [2, offset_groups * 6, 4, 5])} if mask else {})}
    node = helper.make_node(
        "DeformConv",
        ["x", "w", "o", "b", *(["m"] if mask else [])],
        ["y"],
        name="deform",
        group=groups,
        offset_group=offset_groups,
        pads=[1, 0, 0, 0],
        kernel_shape=[3, 2],
    )
    model = make_model([node], inputs, {"y": out}, initializers=[weight, bias])
    feeds = {name: array(*typed[1]) for name, typed in inputs.items()}
    (result,) = ENGINE.load(save(model, tmp_path / "model.onnx"), threads=1).run(feeds).values()
    np.testing.assert_allclose(result, reference(model, feeds, tmp_path)[0], atol=1e-4)


def test_deformable_convolution_with_computed_weights_is_refused():
    types = [(FLOAT, [1, 2, 4, 4]), (FLOAT, [2, 2, 1, 1]), (FLOAT, [1, 2, 4, 4])]
    found = reason("DeformConv", types, [(FLOAT, [1, 2, 4, 4])])
    assert found is not None
    assert "DeformableConv2D needs constant weights" in found


# What ncnn has no tensors for, and files.


@pytest.mark.parametrize(
    ("typed", "value", "message"),
    [
        ((FLOAT, ["n", 2]), np.zeros((0, 2), np.float32), r"Input 'x0' is empty, \[0, 2\]"),
        ((FLOAT, [1] * 5), np.zeros([1] * 5, np.float32), "Input 'x0' has rank 5, and ncnn takes 4 dimensions"),
        (("INT64", [2, 1]), np.array([[1], [2**40]]), "Input 'x0' holds an int64 value outside the range of int32"),
    ],
)
def test_inputs_that_ncnn_does_not_carry(tmp_path, typed, value, message):
    shape = typed[1][::-1]
    perm = list(range(len(shape)))[::-1]
    path = save(one_node("Transpose", [typed], [(typed[0], shape)], perm=perm), tmp_path / "model.onnx")
    session = ENGINE.load(path, threads=1)
    with pytest.raises(EngineError, match=message):
        session(value)


def test_files_that_are_missing_or_damaged(tmp_path):
    path = save(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]), tmp_path / "model.onnx")
    description, param, weights = ENGINE.compile_model(path, [])
    param.write_text(param.read_text().replace("ReLU ", "Nonsense "))
    with pytest.raises(EngineError, match=r"refuses 'model\.ncnn\.param': layer Nonsense not exists or registered"):
        ENGINE.load(path)
    weights.unlink()
    with pytest.raises(InputError, match=r"model\.ncnn\.bin is missing in the folder of model\.ncnn\.json"):
        ENGINE.load(path)
    description.write_text("{}")
    with pytest.raises(
        InputError, match=r"model\.ncnn\.json, which describes the net's inputs and outputs, is missing"
    ):
        ENGINE.load(path)


def test_a_node_that_pnnx_crashes_on():
    types = [(FLOAT, [2, 2]), ("INT64", [2, 2])]
    found = reason("GatherElements", types, [(FLOAT, [2, 2])])
    assert found is not None
    assert found.startswith("pnnx can't convert the model: ")


def test_outputs_that_are_inputs_and_inputs_that_nothing_uses(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Identity", ["i"], ["j"]),
        helper.make_node("Identity", ["j"], ["z"]),
    ]
    inputs = {"i": ("INT64", ["n"]), "unused": ("DOUBLE", []), "x": (FLOAT, [2])}
    model = make_model(nodes, inputs, {"z": ("INT64", ["n"]), "y": (FLOAT, [2])})
    session = ENGINE.load(save(model, tmp_path / "model.onnx"), threads=1)
    z, y = session(np.zeros(0, np.int64), np.zeros(()), np.array([-1, 2], np.float32))
    assert z.shape == (0,)
    assert z.dtype == np.int64
    assert y.tolist() == [0, 2]


def test_it_is_not_installed(monkeypatch):
    from opbridge.engines.ncnn import native

    for function in (native.runtime, native.converter):
        function.cache_clear()
    monkeypatch.setitem(sys.modules, "ncnn", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        assert not ENGINE.is_installed()
        for function, name in ((native.runtime, "ncnn"), (native.converter, "pnnx")):
            with pytest.raises(EngineNotInstalledError, match=rf"{name}.* is not installed") as caught:
                function()
            assert caught.value.fix == "pip install --upgrade ncnn pnnx"
    finally:
        monkeypatch.undo()
        for function in (native.runtime, native.converter):
            function.cache_clear()


@pytest.mark.sweep
def test_a_bundle_runs_without_torch_onnx_and_pnnx(tmp_path):
    file = tmp_path / "addition.py"
    file.write_text(ADDITION)
    kernel = (KERNELS / "my_add.h").read_text()
    assert "mylib::my_add" in kernel
    file.with_name("my_add.h").write_text(kernel.replace("mylib::my_add", "engine_ncnn::my_add"))
    bundle = opbridge.export(f"{file}:entry", path=tmp_path / "bundle", engines=["ncnn"])
    assert bundle.verified
    assert {"model.ncnn.json", "model.ncnn.param", "model.ncnn.bin"} <= set(bundle.manifest["files"])
    description = json.loads((bundle.path / "model.ncnn.json").read_bytes())
    assert [kernel["target"] for kernel in description["kernels"]] == ["engine_ncnn::my_add"]
    assert description["kernels"][0]["attributes"] == {"alpha": 3.0}
    script = (
        "import sys\n"
        "for name in ('torch', 'onnx', 'onnx_ir', 'onnxscript', 'pnnx', 'onnxruntime'): sys.modules[name] = None\n"
        "import numpy, opbridge\n"
        f"session = opbridge.load({str(bundle.path)!r}, engine='ncnn', threads=1)\n"
        "print(session(numpy.ones((2, 3, 6, 6), numpy.float32))[0].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 4, 4, 4)", done.stderr
