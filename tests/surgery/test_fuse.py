"""``fuse`` finds an operator's body however it is spelled, and nothing else; ``attach`` gives nodes what they lack."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import onnxscript
import pytest
from command_lines import small_model
from one_node import make_model
from onnx import helper, numpy_helper
from places import EXAMPLES, TUTORIAL

torch = pytest.importorskip("torch")

from onnxscript import opset20 as op  # noqa: E402
from torch import Tensor  # noqa: E402

import opbridge  # noqa: E402
from opbridge import surgery  # noqa: E402
from opbridge.cli import main  # noqa: E402
from opbridge.errors import InputError  # noqa: E402

pytestmark = pytest.mark.newest

node = helper.make_node
ROW = ("FLOAT", ["n", 4])
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)


@opbridge.operator("test_fuse::blend", samples=lambda: [opbridge.Sample((torch.randn(2, 3), torch.randn(2, 3), 0.5))])
def blend(x: Tensor, y: Tensor, factor: float) -> Tensor:
    return torch.relu(x * factor + y)


@opbridge.operator("test_fuse::extremes", samples=lambda: [opbridge.Sample((torch.randn(2, 3),))])
def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    shifted = torch.sin(x)
    return torch.exp(shifted), torch.abs(shifted)


@opbridge.operator("test_fuse::twice_sine", samples=lambda: [opbridge.Sample((torch.randn(2, 3),))])
def twice_sine(x: Tensor) -> Tensor:
    return torch.sin(torch.sin(x))


@opbridge.operator("test_fuse::linear", samples=lambda: [opbridge.Sample((torch.randn(2, 5, 3), torch.randn(7, 3)))])
def linear(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight).exp()


@opbridge.operator("test_fuse::nothing", samples=lambda: [opbridge.Sample((torch.randn(2, 3),))])
def nothing(x: Tensor) -> Tensor:
    return x


@opbridge.operator("test_fuse::unsampled")
def unsampled(x: Tensor) -> Tensor:
    return torch.sin(x)


def run(model: Any, **feeds: np.ndarray) -> list[np.ndarray]:
    proto = model if isinstance(model, onnx.ModelProto) else ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    return session.run(None, {name: feeds[name] for name in names})


def same(found: Any, expected: Any, **feeds: np.ndarray) -> None:
    feeds = feeds or {"x": X, "y": Y}
    for one, other in zip(run(found.model, **feeds), run(expected, **feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def number(name: str, value: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def blended(nodes: list[onnx.NodeProto], **weights: Any) -> onnx.ModelProto:
    return make_model(nodes, {"x": ROW, "y": ROW}, {"z": ROW}, initializers=[number(k, v) for k, v in weights.items()])


TAIL = [node("Add", ["a", "y"], ["b"]), node("Relu", ["b"], ["z"])]
SPELLINGS = {
    "commuted": blended(
        [node("Mul", ["f", "x"], ["a"]), node("Add", ["y", "a"], ["b"]), node("Relu", ["b"], ["z"])], f=0.5),
    "a constant as a node": blended(
        [node("Constant", [], ["f"], value_float=0.5), node("Mul", ["x", "f"], ["a"]), node("Add", ["a", "y"], ["b"]),
         node("Relu", ["b"], ["z"])]),
    "a constant of rank 1 that is computed": blended(
        [node("Sqrt", ["q"], ["f"]), node("Mul", ["x", "f"], ["a"]), *TAIL], q=[0.25]),
    "noise": blended(
        [node("Identity", ["x"], ["i"]), node("Mul", ["i", "f"], ["a"]), node("Cast", ["a"], ["c"], to=1),
         node("Dropout", ["c"], ["d"]), node("Shape", ["d"], ["s"]), node("Reshape", ["d", "s"], ["e"]),
         node("Add", ["e", "y"], ["b"]), node("Relu", ["b"], ["z"])], f=0.5),
    "another factor": blended([node("Mul", ["x", "f"], ["a"]), *TAIL], f=0.3),
}  # fmt: skip


@pytest.mark.quick("noise", every=3)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_computation_in_many_spellings(spelling: str) -> None:
    model = SPELLINGS[spelling]
    fused = opbridge.fuse(model, blend)
    *before, only = fused.model.graph
    assert [item.op_type for item in before] == (["Identity"] if spelling == "noise" else [])
    assert (only.domain, only.op_type) == ("test_fuse", "blend")
    assert only.attributes["factor"].as_float() == pytest.approx(0.3 if spelling == "another factor" else 0.5)
    assert list(fused.model.graph.initializers) == []
    same(fused, model)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("opset", [11, 14])
def test_a_model_of_an_opset_from_before_functions(opset: int) -> None:
    old = opbridge.convert_opset(SPELLINGS["commuted"], opset).model
    fused = opbridge.fuse(old, blend)
    assert [item.op_type for item in fused.model.graph] == ["blend"]
    assert fused.model.opset_imports[""] == opset
    same(fused, SPELLINGS["commuted"])


@pytest.mark.slow
def test_each_place_has_its_own_number_and_inlining_gives_the_model_back() -> None:
    nodes = [
        node("Mul", ["x", "f"], ["a"], "m1"), node("Add", ["a", "y"], ["b"], "a1"), node("Relu", ["b"], ["c"], "r1"),
        node("Mul", ["c", "g"], ["d"], "m2"), node("Add", ["d", "y"], ["e"], "a2"), node("Relu", ["e"], ["z"], "r2"),
    ]  # fmt: skip
    model = blended(nodes, f=0.5, g=2.0)
    fused = opbridge.fuse(model, "test_fuse::blend")
    assert [item.attributes["factor"].as_float() for item in fused.model.graph] == [0.5, 2.0]
    assert [change.where for change in fused.changes] == [("blend_c",), ("blend_z",)]
    assert fused.changes[0].what == "3 nodes are now one test_fuse::blend"
    same(fused, model)
    one = opbridge.fuse(model, blend, at=["z"])
    assert [item.op_type for item in one.model.graph] == ["Mul", "Add", "Relu", "blend"]
    back = opbridge.inline(fused)
    assert [item.op_type for item in back.model.graph if item.op_type != "Constant"] == ["Mul", "Add", "Relu"] * 2
    same(back, model)


@pytest.mark.slow
def test_a_file_without_the_operator_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.py").touch()
    with pytest.raises(InputError, match=r"No operator 'mylib::lost' is declared in '.*empty\.py' or before\."):
        surgery.fuse(small_model(tmp_path / "m.onnx"), "mylib::lost", ops=(tmp_path / "empty.py",))


@pytest.mark.slow
def test_two_outputs_and_inside_a_branch() -> None:
    nodes = [node("Sin", ["x"], ["s"]), node("Abs", ["s"], ["q"]), node("Exp", ["s"], ["p"])]
    model = make_model(nodes, {"x": ROW}, {"p": ROW, "q": ROW})
    fused = opbridge.fuse(model, extremes)
    assert [item.op_type for item in fused.model.graph] == ["extremes"]
    same(fused, model, x=X)
    inner = helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(name, 1, ["n", 4]) for name in "pq"])
    choice = node("If", ["yes"], ["u", "v"], then_branch=inner, else_branch=inner)
    branching = make_model([choice], {"yes": ("BOOL", []), "x": ROW}, {"u": ROW, "v": ROW})
    inside = opbridge.fuse(branching, extremes)
    assert len(inside.changes) == 2
    same(inside, branching, x=X, yes=np.array(True))


@pytest.mark.slow
def test_a_weight_that_was_transposed_when_the_model_was_optimized() -> None:
    weight = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Exp", ["m"], ["z"])]
    model = make_model(
        nodes, {"x": ("FLOAT", [2, "n", 4])}, {"z": ("FLOAT", [2, "n", 6])}, initializers=[number("w", weight)]
    )
    fused = opbridge.fuse(model, linear)
    ((name, value),) = fused.model.graph.initializers.items()
    assert (name, list(value.shape)) == ("w_transposed", [6, 4])
    same(fused, model, x=np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32))


@pytest.mark.slow
def test_an_operator_in_two_element_types_gets_two_bodies() -> None:
    nodes = [
        node("Mul", ["x", "f"], ["a"]), node("Add", ["a", "y"], ["b"]), node("Relu", ["b"], ["c"]),
        node("Cast", ["c"], ["d"], to=11), node("Mul", ["d", "g"], ["e"]), node("Add", ["e", "d"], ["h"]),
        node("Relu", ["h"], ["z"]),
    ]  # fmt: skip
    weights = [number("f", 0.5), number("g", 0.25, np.float64)]
    model = make_model(nodes, {"x": ROW, "y": ROW}, {"z": ("DOUBLE", ["n", 4])}, initializers=weights)
    double = (torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64), 0.5)
    fused = opbridge.fuse(opbridge.fuse(model, blend), blend, args=double)
    assert [item.op_type for item in fused.model.graph] == ["blend", "Cast", "blend"]
    assert len(fused.model.functions) == 2
    assert fused.model.ir_version >= 10
    same(fused, model)


SCRIPT = onnxscript.values.Opset("test_fuse", 1)


@onnxscript.script(SCRIPT, default_opset=op)
def leaky_sum(x, y, alpha: float = 0.1):
    return op.LeakyRelu(x + y, alpha=alpha)


def test_an_onnxscript_function_with_an_attribute() -> None:
    model = make_model(
        [node("Add", ["y", "x"], ["a"]), node("LeakyRelu", ["a"], ["z"], alpha=0.25)], {"x": ROW, "y": ROW}, {"z": ROW}
    )
    fused = opbridge.fuse(model, leaky_sum)
    (only,) = fused.model.graph
    assert (only.op_type, only.attributes["alpha"].as_float()) == ("leaky_sum", 0.25)
    same(fused, model)


# Attention blocks of a transformer.


def example() -> Any:
    specification = importlib.util.spec_from_file_location("vit_attention_of_the_test", EXAMPLES / "vit_attention.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def transformer() -> Any:
    return example()


def exported(transformer: Any, file: Path, dynamic: bool, optimize: bool) -> Path:
    module, (x,) = transformer.model()
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2)},) if dynamic else None
    x = torch.randn(3, 12, 32) if dynamic else x
    torch.onnx.export(
        module, (x,), file, dynamo=True, verbose=False, optimize=optimize, dynamic_shapes=shapes, external_data=False
    )
    return file


@pytest.mark.quick(every=0)
@pytest.mark.parametrize(("dynamic", "optimize"), [(False, True), (False, False), (True, True), (True, False)])
def test_the_attention_blocks_of_a_transformer(transformer: Any, tmp_path: Path, dynamic: bool, optimize: bool) -> None:
    file = exported(transformer, tmp_path / "m.onnx", dynamic, optimize)
    args = transformer.example_arguments()
    if dynamic:
        args = (torch.randn(2, *args[0].shape[1:]), *args[1:])
    fused = opbridge.fuse(file, transformer.attention, args=args)
    found = [item for item in fused.model.graph if item.op_type == "attention"]
    assert [item.attributes["heads"].as_int() for item in found] == [4, 4]
    sizes = (5, 9, 32) if dynamic else (1, 12, 32)
    x = np.random.default_rng(5).standard_normal(sizes).astype(np.float32)
    same(fused, onnx.load(file), x=x)


@pytest.mark.sweep
def test_the_command_on_a_bundle(transformer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "vit_attention.py")
    assert main(["export", f"{file}:model", "-o", str(tmp_path / "b"), "--no-verify", "-q"]) == 0
    model, out = tmp_path / "b" / "model.onnx", tmp_path / "fused.onnx"
    assert main(["fuse", str(model), "examples::attention", "--ops", file, "-o", str(out), "-q"]) == 0
    assert "nodes are now one examples::attention" in capsys.readouterr().out
    fused = onnx.load(out)
    assert sum(item.op_type == "attention" for item in fused.graph.node) == 2
    x = np.random.default_rng(5).standard_normal((1, 12, 32)).astype(np.float32)
    for one, other in zip(run(fused, x=x), run(onnx.load(model), x=x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


# What is refused.


def sines(count: int) -> onnx.ModelProto:
    names = ["x", *(f"s{i}" for i in range(1, count)), "z"]
    nodes = [node("Sin", [a], [b], f"sine_{i}") for i, (a, b) in enumerate(itertools.pairwise(names))]
    return make_model(nodes, {"x": ROW}, {"z": ROW})


def used_inside() -> onnx.ModelProto:
    nodes = [
        node("Sin", ["x"], ["s"], "first"),
        node("Sin", ["s"], ["z"], "second"),
        node("Neg", ["s"], ["q"], "other"),
    ]
    return make_model(nodes, {"x": ROW}, {"z": ROW, "q": ROW})


REFUSED = {
    "nothing": (
        SPELLINGS["commuted"], twice_sine, {}, "The body of test_fuse::twice_sine occurs nowhere", "write the body"),
    "nothing, but close": (
        sines(1), twice_sine, {}, "at the closest place 'x' is an input or weight, where the pattern has Sin", "args"),
    "used inside": (
        used_inside(), twice_sine, {}, "its inner value 's' is used by 'other' too, for the one that gives 'z'", ""),
    "overlap": (
        sines(3), twice_sine, {}, "Two places overlap in 'sine_1': the one that gives 's2' and the one", "--at s2"),
    "not there": (sines(2), twice_sine, {"at": ["s1"]}, "does not give 's1'", "'z'"),
    "gives its input": (sines(2), nothing, {}, "gives one of its inputs back", "computes something"),
    "no example": (sines(2), unsampled, {}, "test_fuse::unsampled has no example of its arguments", "args=(...)"),
    "wrong example": (sines(2), unsampled, {"args": (1, 2)}, "do not fit test_fuse::unsampled", "each parameter of"),
    "undeclared": (
        sines(2), "test_fuse::blendd", {}, "No operator 'test_fuse::blendd'", "did you mean 'test_fuse::blend'"),
    "no operator": (sines(2), len, {}, "'len' is not an operator", "@opbridge.operator"),
}  # fmt: skip


@pytest.mark.quick("undeclared", "no operator", every=3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    model, operator, options, message, fix = REFUSED[name]
    with pytest.raises(InputError) as caught:
        opbridge.fuse(model, operator, **options)
    assert message in caught.value.message
    assert fix in caught.value.fix


@pytest.mark.slow
def test_of_overlapping_places_one_is_chosen() -> None:
    fused = opbridge.fuse(sines(3), twice_sine, at=["z"])
    assert [item.op_type for item in fused.model.graph] == ["Sin", "twice_sine"]
    same(fused, sines(3), x=X)


# Attach.


def foreign() -> onnx.ModelProto:
    nodes = [node("Relu", ["x"], ["r"]), node("squash", ["r"], ["z"], "mine", domain="foreign", power=2)]
    return make_model(nodes, {"x": ROW}, {"z": ROW}, domains=["foreign"])


BODY = """
import torch
import opbridge

@opbridge.body_for("foreign::squash")
def squash(x, power):
    return torch.tanh(x) ** power
"""


def test_a_body_for_a_foreign_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bodies.py").write_text(BODY)
    onnx.save(foreign(), tmp_path / "m.onnx")
    attached = surgery.attach(tmp_path / "m.onnx", ops=[tmp_path / "bodies.py"])
    assert attached.changes[0].to_dict() == {"what": "foreign::squash has a body", "where": ["mine"]}
    expected = np.tanh(np.maximum(X, 0)) ** 2
    np.testing.assert_allclose(run(attached.model, x=X)[0], expected, rtol=1e-5, atol=1e-6)
    out = tmp_path / "out.onnx"
    assert main(["attach", str(tmp_path / "m.onnx"), "--ops", str(tmp_path / "bodies.py"), "-o", str(out), "-q"]) == 0
    np.testing.assert_allclose(run(onnx.load(out), x=X)[0], expected, rtol=1e-5, atol=1e-6)
    assert "foreign::squash has a body" in capsys.readouterr().out


FOREIGN = onnxscript.values.Opset("foreign", 1)


@onnxscript.script(FOREIGN, default_opset=op)
def squash(x, power: int):
    return op.Pow(op.Tanh(x), op.Cast(op.Constant(value_int=power), to=1))


def test_an_onnxscript_body_for_a_foreign_node() -> None:
    attached = surgery.attach(foreign(), [squash])
    np.testing.assert_allclose(run(attached.model, x=X)[0], np.tanh(np.maximum(X, 0)) ** 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="foreign::squash has a body already"):
        surgery.attach(attached, [squash])
    with pytest.raises(InputError, match="no custom node 'foreign::squash'"):
        surgery.attach(sines(2), [squash])
    with pytest.raises(InputError, match="'len' is not an onnxscript function"):
        surgery.attach(foreign(), [len])


def test_a_kernel_for_a_foreign_node(tmp_path: Path) -> None:
    file = TUTORIAL / "clamp_swish.py"
    nodes = [node("clamp_swish", ["x"], ["z"], "mine", domain="mylib")]
    model = make_model(nodes, {"x": ROW}, {"z": ROW}, domains=["mylib"])
    attached = surgery.attach(model, ops=[file], engines=["onnxruntime"])
    assert [change.what for change in attached.changes][-1] == "mylib::clamp_swish has a kernel for onnxruntime"
    attached.save(tmp_path / "m.onnx")
    library = next(item for item in tmp_path.iterdir() if "onnxruntime" in item.name)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    with_kernel = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(with_kernel.run(None, {"x": X})[0], run(attached.model, x=X)[0], rtol=1e-5, atol=1e-6)
