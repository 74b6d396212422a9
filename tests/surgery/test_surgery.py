"""The verbs of surgery: each result is valid and computes what it should, each bad request is refused with a fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from one_node import make_model
from onnx import helper, numpy_helper
from places import ENTRIES

from opbridge import surgery
from opbridge.cli import main
from opbridge.errors import InputError
from opbridge.onnx_model.read import MappedTensor
from opbridge.onnx_model.write import save_model
from opbridge.surgery.edited import Edited

pytestmark = pytest.mark.newest

node = helper.make_node
ROW = ("FLOAT", ["n", 4])
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def constant(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def mlp() -> onnx.ModelProto:
    """x → product → (bias) sum → relu → scaled, and a second output."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"], "product"),
        node("Add", ["m", "b"], ["s"], "sum"),
        node("Relu", ["s"], ["r"], "relu"),
        node("LeakyRelu", ["r"], ["y"], "leaky", alpha=0.25),
        node("Neg", ["s"], ["z"], "negative"),
    ]
    weights = [constant("w", W), constant("b", np.ones(4, np.float32))]
    return make_model(nodes, {"x": ROW}, {"y": ROW, "z": ROW}, initializers=weights)


def run(model: Any, **feeds: np.ndarray) -> list[np.ndarray]:
    proto = (
        ir.to_proto(model.model if isinstance(model, Edited) else model)
        if not isinstance(model, onnx.ModelProto)
        else model
    )
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds or {"x": X})


def same(found: Any, expected: Any, **feeds: np.ndarray) -> None:
    for one, other in zip(run(found, **feeds), run(expected, **feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def kinds(model: Any) -> list[str]:
    graph = (model.model if isinstance(model, Edited) else model).graph
    return [item.op_type for item in graph]


# What all share.


def test_a_verb_takes_a_path_a_proto_a_model_and_a_result_and_changes_none(tmp_path: Path) -> None:
    proto = mlp()
    onnx.save(proto, tmp_path / "m.onnx")
    model = ir.from_proto(proto)
    before = proto.SerializeToString()
    for given in (proto, model, tmp_path / "m.onnx", str(tmp_path / "m.onnx"), Edited(model, ())):
        assert kinds(surgery.insert(given, "Abs", "s")) == ["MatMul", "Add", "Abs", "Relu", "LeakyRelu", "Neg"]
    assert proto.SerializeToString() == before
    assert ir.to_proto(model).SerializeToString() == ir.to_proto(ir.from_proto(proto)).SerializeToString()
    with pytest.raises(InputError, match="A list is no ONNX model"):
        surgery.inline([])


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = surgery.insert(mlp(), "Abs", "s")
    target = tmp_path / "m.onnx"
    edited.save(target)
    with pytest.raises(InputError, match="exists already"):
        edited.save(target)
    before = target.read_bytes()

    def fail(*args: Any, **kwargs: Any) -> None:
        (args[1] / "m.onnx").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("opbridge.surgery.edited.save_model", fail)
    with pytest.raises(InputError, match="No space left on device"):
        edited.save(target, overwrite=True)
    assert target.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_a_file_where_the_weights_would_go_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "m.onnx.data").write_bytes(b"of another model")
    big = make_model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": ("FLOAT", ["n", 64])}, {"y": ("FLOAT", ["n", 64])},
        initializers=[constant("w", np.eye(64, dtype=np.float32))],
    )  # fmt: skip
    edited = surgery.insert(big, "Relu", "y")
    with pytest.raises(InputError, match=r"The weights would go to 'm.onnx.data', which exists already"):
        edited.save(tmp_path / "m.onnx", external_data=True)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("m.onnx.data", b"of another model")]
    edited.save(tmp_path / "m.onnx", external_data=True, overwrite=True)
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)


def test_a_file_may_be_changed_in_place_with_its_external_data(tmp_path: Path) -> None:
    target = tmp_path / "m.onnx"
    big = make_model(
        [node("MatMul", ["x", "w"], ["y"], "p")], {"x": ("FLOAT", ["n", 64])}, {"y": ("FLOAT", ["n", 64])},
        initializers=[constant("w", np.eye(64, dtype=np.float32))],
    )  # fmt: skip
    onnx.save(big, target, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    surgery.insert(target, "Relu", "y").save(target, overwrite=True, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(str(target), full_check=True)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": -np.ones((1, 64), np.float32)})[0].max() == 0


def test_a_model_that_was_not_valid_before() -> None:
    proto = mlp()
    proto.graph.node[3].attribute[0].name = "alfa"
    with pytest.raises(InputError, match=r"not valid, before any change: .*alfa"):
        surgery.rename(proto, {"r": "q"})


# Insert, delete, rename.


def test_insert_on_an_inner_value_an_input_and_an_output() -> None:
    model = mlp()
    expected = run(model)
    relu_y, relu_z = run(surgery.insert(model, "Neg", "x"), x=-X)
    np.testing.assert_allclose([relu_y, relu_z], expected, atol=1e-6)
    inner = surgery.insert(model, "Abs", "s", only=["negative"], name="mine")
    np.testing.assert_allclose(run(inner)[1], -np.abs(-expected[1]), atol=1e-6)
    np.testing.assert_allclose(run(inner)[0], expected[0], atol=1e-6)
    outer = surgery.insert(model, "Cast", "y", attributes={"to": 7})
    assert [value.name for value in outer.model.graph.outputs] == ["y", "z"]
    assert run(outer)[0].dtype == np.int64
    several = surgery.insert(model, "Add", "s", inputs=["s", "m"])
    np.testing.assert_allclose(run(several)[1], expected[1] - X @ W, rtol=1e-5, atol=1e-6)
    assert outer.changes[0].to_dict() == {"what": "Cast is inserted on 'y'", "where": ["Cast_on_y"]}


def test_delete_nodes_outputs_and_inputs() -> None:
    model = mlp()
    without_relu = surgery.delete(model, nodes=["relu"])
    assert kinds(without_relu) == ["MatMul", "Add", "LeakyRelu", "Neg"]
    np.testing.assert_allclose(run(without_relu)[0], np.where((s := X @ W + 1) > 0, s, s * 0.25), rtol=1e-5, atol=1e-6)
    assert "b" not in surgery.delete(model, nodes=["sum"]).model.graph.initializers
    last = surgery.delete(model, nodes=["y"])
    assert [value.name for value in last.model.graph.outputs] == ["y", "z"]
    one = surgery.delete(model, outputs=["y"])
    assert kinds(one) == ["MatMul", "Add", "Neg"]
    assert one.changes[0].where == ("leaky", "relu")
    unused = make_model([node("Relu", ["x"], ["y"])], {"x": ROW, "u": ROW}, {"y": ROW})
    assert [value.name for value in surgery.delete(unused, inputs=["u"]).model.graph.inputs] == ["x"]
    through = surgery.delete(make_model([node("Relu", ["x"], ["y"], "r")], {"x": ROW}, {"y": ROW}), nodes=["r"])
    np.testing.assert_array_equal(run(through)[0], X)


def test_rename_and_swap() -> None:
    model = mlp()
    before = model.SerializeToString()
    renamed = surgery.rename(
        model, {"x": "pixels", "y": "z", "z": "y", "w": "weight"}, nodes={"relu": "r1"}, dimensions={"n": "batch"}
    )
    graph = renamed.model.graph
    assert [value.name for value in (*graph.inputs, *graph.outputs)] == ["pixels", "z", "y"]
    assert sorted(graph.initializers) == ["b", "weight"]
    assert str(graph.inputs[0].shape[0]) == "batch"
    assert model.SerializeToString() == before
    first, second = run(renamed, pixels=X)
    np.testing.assert_allclose([first, second], run(model), rtol=1e-6, atol=1e-6)


def test_rename_a_custom_operator_and_its_function() -> None:
    renamed = surgery.rename(with_function(), operators={"mylib::Twice": "other::Double"})
    assert [item.op_type for item in renamed.model.graph] == ["Double", "Double"]
    assert set(renamed.model.opset_imports) == {"", "other"}
    same(renamed, with_function())


# Attributes.


def test_set_and_drop_attributes() -> None:
    model = mlp()
    steeper = surgery.set_attributes(model, "leaky", {"alpha": 2})
    assert steeper.model.graph[3].attributes["alpha"].as_float() == 2.0
    assert steeper.changes[0].what == "alpha is 2 instead of 0.25"
    assert "alpha" not in surgery.set_attributes(model, "y", drop=["alpha"]).model.graph[3].attributes


# Functions.


def with_function() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20)]
    twice = helper.make_function("mylib", "Twice", ["a"], ["c"], [node("Add", ["a", "a"], ["c"])], opsets)
    nodes = [node("Twice", ["x"], ["t"], "one", domain="mylib"), node("Twice", ["t"], ["y"], "two", domain="mylib")]
    return make_model(nodes, {"x": ROW}, {"y": ROW}, functions=[twice], domains=["mylib"])


def test_inline_all_some_and_none() -> None:
    model = with_function()
    inlined = surgery.inline(model)
    assert kinds(inlined) == ["Add", "Add"]
    assert set(inlined.model.opset_imports) == {""}
    assert inlined.changes[0].to_dict() == {"what": "mylib::Twice is inlined", "where": ["one", "two"]}
    same(inlined, model)
    same(surgery.inline(model, ["mylib::Twice"]), model)
    assert surgery.inline(mlp()).changes == ()


def test_collapse_puts_what_lies_between_into_a_function() -> None:
    model = mlp()
    collapsed = surgery.collapse(model, "mylib::Dense", ["x"], ["s"])
    assert kinds(collapsed) == ["Dense", "Relu", "LeakyRelu", "Neg"]
    same(collapsed, model)
    assert surgery.diff(surgery.inline(collapsed), model).same
    large = make_model(
        [node("MatMul", ["x", "w"], ["m"], "p"), node("Relu", ["m"], ["y"], "r")],
        {"x": ("FLOAT", ["n", 64])}, {"y": ("FLOAT", ["n", 64])},
        initializers=[constant("w", np.eye(64, dtype=np.float32))],
    )  # fmt: skip
    block = surgery.collapse(large, "mylib::Block", ["x"], ["y"])
    assert [value.name for value in block.model.graph[0].inputs] == ["x", "w"]
    same(block, large, x=np.random.default_rng(2).standard_normal((2, 64)).astype(np.float32))


# Cut and join.


def test_extract_and_join_again() -> None:
    model = mlp()
    head, tail = surgery.extract(model, outputs=["s"]), surgery.extract(model, inputs=["s"])
    assert (kinds(head), kinds(tail)) == (["MatMul", "Add"], ["Relu", "LeakyRelu", "Neg"])
    assert sorted(tail.model.graph.initializers) == []
    assert surgery.diff(surgery.join(head, tail), model).same
    both = surgery.join(head, tail, {"s": "s"})
    same(both, model)


def test_join_resolves_names_and_keeps_other_outputs() -> None:
    second = make_model(
        [node("Mul", ["a", "w"], ["y"], "product")], {"a": ROW}, {"y": ROW}, initializers=[constant("w", W[0])]
    )
    joined = surgery.join(mlp(), second, {"y": "a"})
    assert [value.name for value in joined.model.graph.outputs] == ["z", "y_1"]
    assert sorted(joined.model.graph.initializers) == ["b", "w", "w_1"]
    assert joined.changes[1].where == ("w → w_1", "y → y_1")
    y, z = run(mlp())
    np.testing.assert_allclose(run(joined)[0], z, rtol=1e-6)
    np.testing.assert_allclose(run(joined)[1], y * W[0], rtol=1e-6)


def test_join_on_an_input_with_a_default() -> None:
    second = make_model([node("Add", ["q", "x"], ["t"])], {"q": ROW, "x": ROW}, {"t": ROW}, initializers=[
        constant("x", np.ones((1, 4), np.float32))
    ])  # fmt: skip
    joined = surgery.join(mlp(), second, {"z": "x"})
    assert [value.name for value in joined.model.graph.inputs] == ["x", "q"]
    (_, total), q = run(joined.model, x=X, q=2 * X), 2 * X
    np.testing.assert_allclose(total, q + run(mlp(), x=X)[1], rtol=1e-5, atol=1e-6)


def test_join_brings_functions_and_dimensions_together() -> None:
    opsets = [helper.make_opsetid("", 20)]
    other = helper.make_function("mylib", "Twice", ["a"], ["c"], [node("Mul", ["a", "a"], ["c"])], opsets)
    second = make_model(
        [node("Twice", ["v"], ["o"], domain="mylib")], {"v": ("FLOAT", ["batch", 4])}, {"o": ("FLOAT", ["batch", 4])},
        functions=[other], domains=["mylib"],
    )  # fmt: skip
    joined = surgery.join(with_function(), second, {"y": "v"})
    np.testing.assert_allclose(run(joined)[0], (4 * X) ** 2, rtol=1e-6)
    assert str(joined.model.graph.outputs[0].shape[0]) == "n"


# Dimensions.


def reshaping(batch: Any = 1) -> onnx.ModelProto:
    """A batch of 1 as the target of three Reshapes, and as a token that is joined to the input."""
    nodes = [
        node("Concat", ["token", "x"], ["c"], "join", axis=1),
        node("Reshape", ["c", "s1"], ["r1"], "split"),
        node("Transpose", ["r1"], ["t"], "swap", perm=[1, 0, 2, 3]),
        node("Reshape", ["t", "s2"], ["r2"], "merge"),
        node("MatMul", ["r2", "w"], ["p"], "product"),
        node("Reshape", ["p", "s3"], ["y"], "back"),
    ]
    weights = [
        constant("token", np.ones((1, 1, 8), np.float32)),
        constant("s1", [1, 3, 2, 4]),
        constant("s2", [3, 8]),
        constant("w", np.random.default_rng(3).standard_normal((8, 8)).astype(np.float32)),
        constant("s3", [3, 1, 8]),
    ]
    return make_model(nodes, {"x": ("FLOAT", [batch, 2, 8])}, {"y": ("FLOAT", [3, batch, 8])}, initializers=weights)


def test_a_fixed_batch_becomes_dynamic_and_what_was_baked_in_follows() -> None:
    model = reshaping()
    dynamic = surgery.set_dimensions(model, {"x": {0: "batch"}})
    assert [str(size) for size in dynamic.model.graph.outputs[0].shape] == ["3", "batch", "8"]
    what = [change.what for change in dynamic.changes]
    assert what[1] == "a constant that is joined to the input follows"
    assert what.count("the target of the Reshape follows") == 3
    assert what[-1] == "run in onnxruntime at other sizes of batch"
    x = np.random.default_rng(4).standard_normal((5, 2, 8)).astype(np.float32)
    parts = np.concatenate([run(model, x=x[i : i + 1])[0] for i in range(5)], axis=1)
    np.testing.assert_allclose(run(dynamic, x=x)[0], parts, rtol=1e-5, atol=1e-6)


def test_a_fixed_batch_of_another_size_and_back() -> None:
    x = np.random.default_rng(4).standard_normal((5, 2, 8)).astype(np.float32)
    five = surgery.set_dimensions(reshaping(), {"x": {0: 5}})
    assert list(five.model.graph.outputs[0].shape) == [3, 5, 8]
    dynamic = surgery.set_dimensions(reshaping(), {"x": {0: "batch"}})
    fixed = surgery.set_dimensions(dynamic, {"x": {0: 5}})
    assert list(fixed.model.graph.outputs[0].shape) == [3, 5, 8]
    assert {str(size) for item in fixed.model.graph for value in item.outputs for size in value.shape} & {
        "batch"
    } == set()
    same(five, fixed, x=x)


def test_a_dimension_that_is_a_part_of_the_model() -> None:
    with pytest.raises(InputError, match=r"The node 'product' has the old size of 'x' \(4\) built in") as caught:
        surgery.set_dimensions(mlp(), {"x": {1: "width"}})
    assert "export the model with this dimension dynamic" in caught.value.fix


def test_a_batch_whose_parts_depend_on_each_other() -> None:
    model = make_model(
        [node("ReduceMean", ["x", "a"], ["m"], "mean"), node("Sub", ["x", "m"], ["y"])],
        {"x": ("FLOAT", [1, 4])}, {"y": ("FLOAT", [1, 4])}, initializers=[constant("a", [0])],
    )  # fmt: skip
    with pytest.raises(InputError, match="'y' of one part of a batch depends on the other parts"):
        surgery.set_dimensions(model, {"x": {0: "batch"}})


def test_a_custom_node_of_which_nothing_is_known() -> None:
    nodes = [node("F", ["x"], ["f"], "custom", domain="mylib"), node("Relu", ["f"], ["y"])]
    model = make_model(nodes, {"x": ("FLOAT", [1, 4])}, {"y": ("FLOAT", [1, 4])}, domains=["mylib"])
    with pytest.raises(InputError, match=r"custom node 'custom' \(mylib::F\) has no body"):
        surgery.set_dimensions(model, {"x": {0: "batch"}})


# Element types.


def test_float16_where_it_is_enough() -> None:
    half = surgery.convert_dtype(mlp())
    graph = half.model.graph
    assert {value.dtype for value in (*graph.inputs, *graph.outputs)} == {ir.DataType.FLOAT16}
    assert {value.dtype for value in graph.initializers.values()} == {ir.DataType.FLOAT16}
    assert half.changes[0].what == "5 nodes compute in float16"
    for found, expected in zip(run(half, x=X.astype(np.float16)), run(mlp()), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.01)
    kept = surgery.convert_dtype(mlp(), keep_io=True)
    assert {v.dtype for v in (*kept.model.graph.inputs, *kept.model.graph.outputs)} == {ir.DataType.FLOAT}
    assert run(kept)[0].dtype == np.float32


def test_no_weight_of_a_file_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [constant(f"w{i}", np.float32(np.random.default_rng(i).standard_normal((64, 64)) / 6)) for i in range(3)]
    nodes = [node("MatMul", ["x" if i == 0 else f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(3)]
    nodes.append(node("Relu", ["h3"], ["y"]))
    row = ("FLOAT", ["n", 64])
    onnx.save(
        make_model(nodes, {"x": row}, {"y": row}, initializers=weights),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        size_threshold=0,
    )
    held: set[str] = set()
    numbers, release = MappedTensor.numpy, MappedTensor.release
    monkeypatch.setattr(MappedTensor, "numpy", lambda self: (held.add(self.name), numbers(self))[1])
    monkeypatch.setattr(MappedTensor, "release", lambda self: (held.discard(self.name), release(self))[1])
    half = surgery.convert_dtype(tmp_path / "model.onnx")
    save_model(half.model, tmp_path, name="half.onnx")
    assert held == set()
    assert {tensor.data_type for tensor in onnx.load(tmp_path / "half.onnx").graph.initializer} == {10}


def test_what_float16_can_not_hold_stays_float32() -> None:
    nodes = [
        node("Mul", ["x", "big"], ["a"], "scale"),
        node("Mul", ["a", "a"], ["b"], "square"),
        node("ReduceMean", ["b", "axis"], ["c"], "mean"),
        node("Sqrt", ["c"], ["d"], "root"),
        node("Div", ["x", "d"], ["e"], "normalised"),
        node("MatMul", ["e", "w"], ["y"], "product"),
    ]
    weights = [constant("big", np.float32([3000])), constant("axis", [1]), constant("w", W * 1000)]
    model = make_model(nodes, {"x": ROW}, {"y": ROW}, initializers=weights)
    half = surgery.convert_dtype(model, keep_io=True)
    stays = {change.where[0]: change.what for change in half.changes if change.what.startswith("stays float32")}
    assert "square" in stays
    assert "product" not in stays
    assert stays["square"] == "stays float32: Mul overflows"
    expected = run(model)[0]
    np.testing.assert_allclose(run(half)[0], expected, atol=0.01 * np.abs(expected).max())


def test_float16_inside_and_around_a_branch_and_a_cast() -> None:
    then = helper.make_graph([node("Relu", ["m"], ["o"])], "t", [], [helper.make_tensor_value_info("o", 1, ["n", 4])])
    other = helper.make_graph([node("Neg", ["m"], ["p"])], "e", [], [helper.make_tensor_value_info("p", 1, ["n", 4])])
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("If", ["yes"], ["i"], "choice", then_branch=then, else_branch=other),
        node("Cast", ["i"], ["j"], to=6),
        node("Cast", ["j"], ["k"], to=1),
        node("Add", ["k", "m"], ["y"]),
    ]
    model = make_model(nodes, {"x": ROW, "yes": ("BOOL", [])}, {"y": ROW}, initializers=[constant("w", W)])
    half = surgery.convert_dtype(model, keep_io=True, tolerance=2)
    assert any(change.what == "stays float32: If has a subgraph" for change in half.changes)
    found, expected = (run(item, x=X, yes=np.array(True))[0] for item in (half, model))
    np.testing.assert_allclose(found, expected, atol=1.01)


# What is refused.


def pick(verb: str, *args: Any, **kwargs: Any) -> Any:
    return lambda: getattr(surgery, verb)(*args, **kwargs)


def typed(dtype: str, sizes: list[Any]) -> onnx.ModelProto:
    return make_model([node("Identity", ["s"], ["q"])], {"s": (dtype, sizes)}, {"q": (dtype, sizes)})


def at_opset(opset: int) -> onnx.ModelProto:
    return make_model([node("Relu", ["s"], ["q"])], {"s": ROW}, {"q": ROW}, opset=opset)


REFUSED = {
    "insert, unknown value": (pick("insert", mlp(), "Abs", "mm"), "no value 'mm'", "did you mean 'm'"),
    "insert, unknown operator": (
        pick("insert", mlp(), "Rellu", "s", attributes={"a": 1}), "no operator 'Rellu'", "'Relu'"),
    "insert, unknown reader": (pick("insert", mlp(), "Abs", "s", only=["product"]), "'product' does not read 's'", ""),
    "insert, a cycle": (
        pick("insert", mlp(), "Add", "x", inputs=["x", "m"]),
        "computed from 'x', and give 'x' anew: the model would be cyclic", "only="),
    "insert, invalid": (pick("insert", mlp(), "Not", "s"), "would leave an invalid model", "change"),
    "delete, unknown": (pick("delete", mlp(), nodes=["rellu"]), "no node 'rellu'", "did you mean 'relu'"),
    "delete, no stand-in": (
        pick("delete", make_model([node("Shape", ["x"], ["y"], "s")], {"x": ROW}, {"y": ("INT64", [2])}), nodes=["s"]),
        "'s' (Shape) has no input of the type and rank", "extract"),
    "delete, the only output": (
        pick("delete", with_function(), outputs=["y"]), "'y' is the only output", "keep one output"),
    "delete, unknown output": (pick("delete", mlp(), outputs=["yy"]), "no output 'yy'", "did you mean 'y'"),
    "delete, an input in use": (pick("delete", mlp(), inputs=["x"]), "'x' is read by 'product'", "extract"),
    "delete, unknown input": (pick("delete", mlp(), inputs=["q"]), "no input 'q'", "'x'"),
    "rename, unknown": (pick("rename", mlp(), {"q7": "q"}), "no value 'q7'", ""),
    "rename, taken": (pick("rename", mlp(), {"x": "m"}), "'x' can't become 'm': the name is taken", "another name"),
    "rename, a dimension": (pick("rename", mlp(), dimensions={"k": "m"}), "no dimension 'k'", "'n'"),
    "rename, an operator": (pick("rename", mlp(), operators={"a::B": "c::D"}), "no custom operator 'a::B'", "none"),
    "attribute, unknown": (
        pick("set_attributes", mlp(), "leaky", {"alfa": 1}), "LeakyRelu has no attribute 'alfa'", "'alpha'"),
    "attribute, type": (
        pick("set_attributes", mlp(), "leaky", {"alpha": "much"}), "'much' can't be the attribute 'alpha'", "type"),
    "attribute, drop": (pick("set_attributes", mlp(), "relu", drop=["alpha"]), "has no attribute 'alpha'", "none"),
    "inline, unknown": (
        pick("inline", with_function(), ["mylib::Twize"]), "no function 'mylib::Twize'", "did you mean 'mylib::Twice'"),
    "extract, unknown": (pick("extract", mlp(), outputs=["ss"]), "no value 'ss'", "did you mean 's'"),
    "extract, input missing": (
        pick("extract", mlp(), ["r"], ["z"]), "need the model's input 'x', which is not among the inputs", "add 'x'"),
    "extract, both": (pick("extract", mlp(), ["s"], ["s"]), "named as an input and as an output", "two different"),
    "extract, nothing": (pick("extract", mlp(), outputs=[]), "No output was named", "at least one"),
    "join, nothing in common": (pick("join", mlp(), mlp()), "Nothing is connected", "mapping="),
    "join, unknown output": (pick("join", mlp(), mlp(), {"yy": "x"}), "no output 'yy'", "did you mean 'y'"),
    "join, unknown input": (pick("join", mlp(), mlp(), {"y": "k"}), "no input 'k'", "'x'"),
    "join, type": (
        pick("join", mlp(), typed("INT64", ["n", 4]), {"y": "s"}), "'y' is float, and 's' takes int64", "Cast"),
    "join, shape": (
        pick("join", mlp(), typed("FLOAT", ["n", 5]), {"y": "s"}),
        "'y' has the shape ['n', 4], and 's' takes", "Reshape"),
    "join, opset": (
        pick("join", mlp(), at_opset(19), {"y": "s"}), "opset 20 of ai.onnx, the second at 19", "convert_opset"),
    "collapse, name": (pick("collapse", mlp(), "Dense", ["x"], ["s"]), "'Dense' is not a custom", "domain::Op"),
    "collapse, used inside": (
        pick("collapse", mlp(), "a::B", ["x"], ["y"]), "inner value 's' is used by 'negative' too", "border"),
    "collapse, input missing": (pick("collapse", mlp(), "a::B", ["r"], ["z"]), "need the model's input 'x'", "add 'x'"),
    "collapse, no path": (pick("collapse", mlp(), "a::B", ["x", "r"], ["z"]), "don't depend on the input 'r'", "leave"),
    "dimension, input": (pick("set_dimensions", mlp(), {"xx": {0: 1}}), "no input 'xx'", "did you mean 'x'"),
    "dimension, axis": (pick("set_dimensions", mlp(), {"x": {2: 1}}), "2 axes, and no axis 2", "count from 0"),
    "dimension, name": (pick("set_dimensions", mlp(), {"x": {0: "a b"}}), "'a b' is not a valid name", "letters"),
    "dimension, number": (pick("set_dimensions", mlp(), {"x": {0: 0}}), "can't have the size 0", "positive"),
    "type, unknown": (pick("convert_dtype", mlp(), "float8"), "No conversion to 'float8'", "'float16'"),
    "type, an input missing": (pick("convert_dtype", mlp(), inputs=[{"y": W}]), "The inputs lack 'x'", "pass 'x'"),
    "type, text": (pick("convert_dtype", mlp(), inputs=[{"x": np.array(["a"])}]), "are not numbers", "'x' float32"),
    "type, no inputs": (pick("convert_dtype", mlp(), inputs=[]), "inputs is empty", "pass one case"),
    "type, too coarse": (pick("convert_dtype", mlp(), tolerance=1e-9), "is off by", "tolerance"),
    "attach, nothing": (pick("attach", mlp()), "Nothing that is declared fits", "body_for"),
    "attach, a file": (pick("attach", mlp(), ops=[ENTRIES["asinh"]]), "asinh.py fits a node", "--ops"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, message, fix = REFUSED[name]
    with pytest.raises(InputError) as caught:
        call()
    assert message in caught.value.message
    assert fix in caught.value.fix


def test_two_nodes_of_one_name() -> None:
    model = make_model([node("Relu", ["x"], ["a"], "r"), node("Relu", ["a"], ["y"], "r")], {"x": ROW}, {"y": ROW})
    with pytest.raises(InputError, match="2 nodes named 'r'") as caught:
        surgery.delete(model, nodes=["r"])
    assert "'a', 'y'" in caught.value.fix
    assert kinds(surgery.delete(model, nodes=["a"])) == ["Relu"]


# Differences.


def changed(change: Any) -> list[tuple[str, str, str]]:
    model = mlp()
    change(model)
    return [(item.kind, item.name, item.detail) for item in surgery.diff(mlp(), model).differences]


def other_names(model: onnx.ModelProto) -> None:
    for item in model.graph.node:
        item.name = f"other_{item.name}"
        for names in (item.input, item.output):
            for position, name in enumerate(names):
                if name not in ("x", "y", "z"):
                    names[position] = f"other_{name}"
    for tensor in model.graph.initializer:
        tensor.name = f"other_{tensor.name}"


def weight_as_node(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer.pop()
    model.graph.node.insert(0, node("Constant", [], [tensor.name], value=tensor))


def test_names_and_spelling_make_no_difference() -> None:
    assert changed(lambda model: None) == []
    assert changed(other_names) == []
    assert changed(weight_as_node) == []


def test_each_kind_of_difference() -> None:
    def attribute(model: onnx.ModelProto) -> None:
        model.graph.node[3].attribute[0].f = 0.5

    def weight(model: onnx.ModelProto) -> None:
        model.graph.initializer[1].CopyFrom(constant("b", np.zeros(4, np.float32)))

    def wiring(model: onnx.ModelProto) -> None:
        model.graph.node[4].input[0] = "r"

    def added(model: onnx.ModelProto) -> None:
        model.graph.node.append(node("Abs", ["r"], ["k"], "extra"))

    def interface(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"

    def opset(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 21

    def operator(model: onnx.ModelProto) -> None:
        model.graph.node[4].op_type = "Abs"

    assert changed(attribute) == [("attribute", "leaky", "alpha: 0.25 → 0.5")]
    assert changed(weight) == [("weight", "b", "other values")]
    assert changed(wiring) == [("wiring", "negative", "the input 0 is 's' → 'r'")]
    assert changed(added) == [("node", "extra", "Abs, only in the second")]
    assert changed(interface) == [("input", "x", "float ['n', 4] → float ['batch', 4]")]
    assert changed(opset) == [("opset", "ai.onnx", "20 → 21")]
    assert ("node", "negative", "Neg, only in the first") in changed(operator)


def test_a_difference_inside_a_function() -> None:
    model = with_function()
    model.functions[0].node[0].op_type = "Mul"
    found = surgery.diff(with_function(), model)
    assert {item.name.partition(":")[0] for item in found.differences} == {"mylib"}
    assert not found.same


# Commands.


def command(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, Any]:
    code = main([*map(str, arguments), "--json", "-q"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(mlp(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


COMMANDS = {
    "insert": (["Abs", "--on", "s", "--only", "negative", "--name", "a"], "Abs is inserted on 's'"),
    "delete": (["--nodes", "relu", "--outputs", "z"], "the node 'relu' (Relu) is deleted"),
    "rename": (["--value", "x=pixels", "--dimension", "n=batch"], "the value 'x' is now 'pixels'"),
    "set-attribute": (["leaky", "alpha=0.5"], "alpha is 0.5 instead of 0.25"),
    "set-dimension": (["x:0=8"], "the axis 0 of 'x' is 8 instead of 'n'"),
    "convert-dtype": (["float16", "--keep-io"], "5 nodes compute in float16"),
    "extract": (["--outputs", "s"], "3 nodes are left out"),
    "fuse": (["mylib::Dense", "--inputs", "x", "--outputs", "s"], "2 nodes are now one mylib::Dense"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_a_model(name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, what = COMMANDS[name]
    before = file.read_bytes()
    code, data = command(capsys, name, file, *arguments, "-o", tmp_path / "out.onnx")
    assert (code, data["changes"][0]["what"]) == (0, what)
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    assert file.read_bytes() == before
    assert main([name, str(file), *arguments, "-o", str(tmp_path / "out.onnx"), "-q"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main([name, str(file), *arguments, "-o", str(tmp_path / "out.onnx"), "-q", "--overwrite"]) == 0
    assert "written to" in capsys.readouterr().out


def test_the_commands_inline_join_and_diff(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(with_function(), tmp_path / "f.onnx")
    code, data = command(capsys, "inline", tmp_path / "f.onnx", "-o", tmp_path / "i.onnx")
    assert (code, data["changes"][0]["where"]) == (0, ["one", "two"])
    code, data = command(capsys, "join", file, tmp_path / "i.onnx", "--map", "y=x", "-o", tmp_path / "j.onnx")
    assert (code, data["changes"][0]["where"]) == (0, ["y → x"])
    assert command(capsys, "diff", file, file) == (0, {"same": True, "differences": []})
    code, data = command(capsys, "diff", file, tmp_path / "j.onnx")
    assert code == 1
    assert {"node", "output"} <= {item["kind"] for item in data["differences"]}
    assert main(["diff", str(file), str(tmp_path / "j.onnx")]) == 1
    assert "only in the second" in capsys.readouterr().out


BAD_COMMANDS = {
    "rename": (["--value", "x"], "'x' is not of the form old=new"),
    "set-dimension": (["x0=8"], "is not of the form INPUT:AXIS=SIZE"),
    "delete": ([], "There is nothing to delete"),
    "set-attribute": (["leaky"], "There is no attribute to set or remove"),
    "fuse": (["mylib::F", "--inputs", "x"], "--inputs and --outputs must be given together"),
    "attach": ([], "Nothing that is declared fits"),
}


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_a_command_that_is_refused_writes_nothing(
    name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_COMMANDS[name]
    code, data = command(capsys, name, file, *arguments, "-o", tmp_path / "out.onnx")
    assert (code, data["error"]) == (1, "InputError")
    assert message in data["message"]
    assert [item.name for item in tmp_path.iterdir()] == ["m.onnx"]
