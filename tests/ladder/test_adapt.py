"""What adapt changes, and that it computes the same."""

from __future__ import annotations

import itertools
import types

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from one_node import BFLOAT16, DOUBLE, FLOAT, make_model, one_node, save, to_ir, value_info
from onnx import helper, numpy_helper
from test_probe import function, node

import opbridge.ladder.adapt as adapt_module
from opbridge import engines
from opbridge.engines.passes.cast_around_missing_types import _WIDER
from opbridge.engines.probe import probe
from opbridge.errors import TranslationError
from opbridge.ladder.adapt import Adaptation, adapt
from opbridge.ladder.valid_translation import check_translation
from opbridge.onnx_model.adaptation import AdaptationResult

ENGINE = engines.get("onnxruntime")


def adapted(model: onnx.ModelProto) -> tuple[ir.Model, tuple[Adaptation, ...]]:
    """The adapted model, checked: valid, taken by the engine, and the original untouched."""
    original = to_ir(model)
    result, adaptations = adapt(original, ENGINE)
    assert ir.to_proto(original).SerializeToString() == ir.to_proto(to_ir(model)).SerializeToString()
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    assert probe(result, ENGINE) == ()
    return result, adaptations


def run(model: ir.Model, tmp_path, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return ENGINE.load(save(model, tmp_path / "adapted.onnx"))(*arrays)


class LosingPass(ir.passes.InPlacePass):
    """A pass as it must not be."""

    def call(self, model: ir.Model) -> AdaptationResult:
        model.graph[0].replace_input_with(0, ir.Value(name="lost"))
        return AdaptationResult(model, True, (Adaptation("a change", ()),))


def test_a_pass_that_breaks_the_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.SimpleNamespace(ORDER=0, for_engine=lambda model, engine, kernels: LosingPass())
    monkeypatch.setattr(adapt_module, "adapting_passes", lambda name: (module,))
    with pytest.raises(TranslationError) as caught:
        adapt(to_ir(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])])), ENGINE)
    assert caught.value.message.startswith("LosingPass wrote an invalid model: ")
    assert "(ai.onnx::Relu) reads 'lost', which nothing before it produces" in caught.value.message


def test_a_mapping_that_writes_an_invalid_node_is_named() -> None:
    model = ir.from_onnx_text('<ir_version: 10, opset_import: ["": 18]> g (float[2] x) => (y) { [n] y = Rleu(x) }')
    with pytest.raises(TranslationError) as caught:
        check_translation(model, None, {"n": "aten::relu.default"})
    reason = (
        "The translation of aten::relu.default to ONNX is not valid: 'n' (ai.onnx::Rleu) is no operator of opset 18"
    )
    assert caught.value.message == reason
    assert caught.value.target == "aten::relu.default"


def test_a_model_that_is_taken_stays_the_same_object():
    model = to_ir(one_node("Relu", [(FLOAT, [2])], [(FLOAT, [2])]))
    assert adapt(model, ENGINE) == (model, ())


def test_a_model_that_nothing_helps_stays_the_same_object():
    for model in (
        one_node("Frob", [(FLOAT, [2])], [(FLOAT, [2])], domain="mine"),
        one_node("Conv", [(DOUBLE, [1, 1, 4, 4]), (DOUBLE, [1, 1, 3, 3])], [(DOUBLE, [1, 1, 2, 2])]),
    ):
        converted = to_ir(model)
        assert adapt(converted, ENGINE) == (converted, ())


def test_every_wider_type_holds_every_value_of_the_narrow_one():
    for narrow, wider in _WIDER.items():
        for wide in wider:
            if narrow == ir.DataType.BOOL:
                extremes = np.array([False, True])
            elif narrow.is_floating_point():
                info = ml_dtypes.finfo(narrow.numpy())
                extremes = np.array([info.min, info.max, info.smallest_subnormal, info.eps], narrow.numpy())
            else:
                info = np.iinfo(narrow.numpy())
                extremes = np.array([info.min, info.max], narrow.numpy())
            assert np.array_equal(extremes.astype(wide.numpy()).astype(narrow.numpy()), extremes), (narrow, wide)


def test_bfloat16_conv_computes_in_float32(tmp_path):
    image, weight = (BFLOAT16, ["n", 3, 8, 8]), (BFLOAT16, [4, 3, 3, 3])
    result, adaptations = adapted(one_node("Conv", [image, weight], [(BFLOAT16, ["n", 4, 6, 6])], opset=22))
    assert adaptations == (
        Adaptation("ai.onnx::Conv computes in float32 instead of bfloat16", ("the_node",), "ai.onnx::Conv"),
    )
    assert adaptations[0].to_dict() == {
        "what": "ai.onnx::Conv computes in float32 instead of bfloat16",
        "nodes": ["the_node"],
    }
    assert [each.op_type for each in result.graph] == ["Cast", "Cast", "Conv", "Cast"]
    assert [value.name for value in result.graph.outputs] == ["y0"]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 3, 8, 8)).astype(ml_dtypes.bfloat16)
    w = rng.normal(size=(4, 3, 3, 3)).astype(ml_dtypes.bfloat16)
    (y,) = run(result, tmp_path, x, w)
    wide = to_ir(one_node("Conv", [(FLOAT, image[1]), (FLOAT, weight[1])], [(FLOAT, ["n", 4, 6, 6])]))
    (expected,) = run(wide, tmp_path, x.astype(np.float32), w.astype(np.float32))
    assert y.dtype == ml_dtypes.bfloat16
    assert np.array_equal(y, expected.astype(ml_dtypes.bfloat16))


def test_bool_where_keeps_its_condition(tmp_path):
    tensor = ("BOOL", ["n"])
    result, adaptations = adapted(one_node("Where", [tensor, tensor, tensor], [tensor]))
    assert [item.what for item in adaptations] == ["ai.onnx::Where computes in uint8 instead of bool"]
    assert [each.op_type for each in result.graph] == ["Cast", "Cast", "Where", "Cast"]
    condition, x, y = np.array(list(itertools.product([False, True], repeat=3))).T
    assert np.array_equal(run(result, tmp_path, condition, x, y)[0], np.where(condition, x, y))


def test_small_integers_wrap_around_as_before(tmp_path):
    tensor = ("INT16", [2, 2])
    result, adaptations = adapted(one_node("MatMul", [tensor, tensor], [tensor]))
    assert [item.what for item in adaptations] == ["ai.onnx::MatMul computes in int32 instead of int16"]
    x = np.array([[30000, 2], [3, -30000]], np.int16)
    assert np.array_equal(run(result, tmp_path, x, x)[0], x @ x)


def test_one_cast_for_a_value_used_twice():
    tensor = (BFLOAT16, [2, 2])
    model = make_model([node("MatMul", ["x", "x"], ["y"])], {"x": tensor}, {"y": tensor})
    result, _ = adapted(model)
    assert [each.op_type for each in result.graph] == ["Cast", "MatMul", "Cast"]


def test_between_other_nodes_and_with_absent_inputs(tmp_path):
    tensor = (BFLOAT16, [3])
    model = make_model(
        [
            node("Identity", ["x"], ["a"]),
            node("Clip", ["a", "", "high"], ["b"]),
            node("Identity", ["b"], ["y"]),
            node("Shape", ["b"], ["n"]),
        ],
        {"x": tensor},
        {"b": tensor, "y": tensor, "n": ("INT64", [1])},
        initializers=[numpy_helper.from_array(np.array(1, ml_dtypes.bfloat16), "high")],
        opset=22,
    )
    result, adaptations = adapted(model)
    assert [item.nodes for item in adaptations] == [("node_b",)]
    b, y, n = run(result, tmp_path, np.array([0, 1, 2], ml_dtypes.bfloat16))
    assert [b.tolist(), y.tolist(), n.tolist()] == [[0, 1, 1], [0, 1, 1], [3]]


def test_new_names_do_not_collide():
    tensor = (BFLOAT16, [2])
    model = make_model(
        [node("Identity", ["x"], ["x_float32"]), node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["node_y_cast"])],
        {"x": tensor},
        {"y": tensor, "x_float32": tensor, "node_y_cast": tensor},
        opset=22,
    )
    result, _ = adapted(model)
    names = [value.name for each in result.graph for value in each.outputs]
    assert len(set(names)) == len(names)
    assert len({each.name for each in result.graph}) == len(result.graph)


def test_casts_carry_the_provenance_of_their_node():
    model = to_ir(one_node("Relu", [(BFLOAT16, [2])], [(BFLOAT16, [2])]))
    model.graph[0].metadata_props["source"] = "model.py:7"
    result, _ = adapt(model, ENGINE)
    assert [each.metadata_props["source"] for each in result.graph] == ["model.py:7"] * 3


def test_in_subgraphs(tmp_path):
    def branch(name, op_type):
        return helper.make_graph(
            [node(op_type, ["x"], [f"{name}_out"])], name, [], [value_info(f"{name}_out", (BFLOAT16, [2]))]
        )

    model = make_model(
        [node("If", ["c"], ["y"], then_branch=branch("then", "Relu"), else_branch=branch("else", "Neg"))],
        {"x": (BFLOAT16, [2]), "c": ("BOOL", [])},
        {"y": (BFLOAT16, [2])},
        opset=22,
    )
    result, adaptations = adapted(model)
    assert {name for item in adaptations for name in item.nodes} == {"node_then_out", "node_else_out"}
    x = np.array([-1, 2], ml_dtypes.bfloat16)
    assert run(result, tmp_path, x, np.array(True))[0].tolist() == [0, 2]
    assert run(result, tmp_path, x, np.array(False))[0].tolist() == [1, -2]


def test_in_function_bodies(tmp_path):
    inner = function("Inner", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    outer = function("F", ["a"], ["b"], [node("Neg", ["a"], ["r"]), node("Inner", ["r"], ["b"], domain="mine")])
    tensor = (BFLOAT16, [2])
    result, adaptations = adapted(one_node("F", [tensor], [tensor], domain="mine", functions=[inner, outer]))
    assert sorted(item.what for item in adaptations) == [
        "ai.onnx::Neg computes in float32 instead of bfloat16",
        "ai.onnx::Relu computes in float32 instead of bfloat16",
    ]
    assert [each.op_type for each in result.functions["mine", "F", ""]] == ["Cast", "Neg", "Cast", "Inner"]
    assert run(result, tmp_path, np.array([-1, 2], ml_dtypes.bfloat16))[0].tolist() == [1, 0]


def test_a_body_that_calls_use_with_several_types_is_left_alone():
    body = function("F", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    model = to_ir(
        make_model(
            [node("F", ["x"], ["y"], domain="mine"), node("F", ["v"], ["w"], domain="mine")],
            {"x": (BFLOAT16, [2]), "v": (FLOAT, [2])},
            {"y": (BFLOAT16, [2]), "w": (FLOAT, [2])},
            functions=[body],
            domains=["mine"],
        )
    )
    assert adapt(model, ENGINE) == (model, ())
    assert [refusal.node for refusal in probe(model, ENGINE)] == ["node_y"]


def test_calls_in_other_bodies_count_too():
    shared = function("Shared", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    outer = function("F", ["a"], ["b"], [node("Shared", ["a"], ["b"], domain="mine")])
    model = to_ir(
        make_model(
            [node("Shared", ["x"], ["y"], domain="mine"), node("F", ["v"], ["w"], domain="mine")],
            {"x": (BFLOAT16, [2]), "v": (FLOAT, [2])},
            {"y": (BFLOAT16, [2]), "w": (FLOAT, [2])},
            functions=[outer, shared],
            domains=["mine"],
        )
    )
    assert adapt(model, ENGINE) == (model, ())


def test_functions_are_inlined_for_engines_that_take_none(monkeypatch, tmp_path):
    engine = type(ENGINE)()
    monkeypatch.setattr(type(ENGINE), "takes_functions", False)
    body = function("F", ["a"], ["b"], [node("Relu", ["a"], ["r"]), node("Neg", ["r"], ["b"])])
    model = to_ir(one_node("F", [(BFLOAT16, [2])], [(BFLOAT16, [2])], domain="mine", functions=[body]))
    result, adaptations = adapt(model, engine)
    assert adaptations[0] == Adaptation("mine::F is inlined", ("the_node",), "mine::F")
    assert len(adaptations) == 3
    assert not result.functions
    assert len(model.functions) == 1
    assert probe(result, engine) == ()
    assert run(result, tmp_path, np.array([-1, 2], ml_dtypes.bfloat16))[0].tolist() == [0, -2]


@pytest.mark.parametrize("op_type", ["BitCast", "CastLike", "QuantizeLinear"])
def test_what_depends_on_the_width_is_not_touched(op_type):
    from opbridge.engines.passes.cast_around_missing_types import _is_exempt

    assert _is_exempt(ir.Node("", op_type, []))


def test_the_type_attribute_is_widened_too():
    model = to_ir(one_node("EyeLike", [(FLOAT, [2, 2])], [("INT16", [2, 2])], dtype=int(onnx.TensorProto.INT16)))
    assert [refusal.operator for refusal in probe(model, ENGINE)] == ["ai.onnx::EyeLike"]
    result, adaptations = adapt(model, ENGINE)
    assert [item.what for item in adaptations] == ["ai.onnx::EyeLike computes in int32 instead of int16"]
    assert probe(result, ENGINE) == ()
    assert result.graph[0].attributes["dtype"].as_int() == onnx.TensorProto.INT32
    assert result.graph.outputs[0].dtype == ir.DataType.INT16


def test_a_sigmoid_that_is_a_result_has_an_exact_tail(tmp_path):
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["gate"], "inner"),
        helper.make_node("Mul", ["x", "gate"], ["h"], "swish"),
        helper.make_node("Relu", ["h"], ["r"], "next"),
        helper.make_node("Sigmoid", ["x"], ["p"], "head"),
        helper.make_node("Reshape", ["p", "shape"], ["q"], "flat"),
    ]
    shape = numpy_helper.from_array(np.array([-1]), "shape")
    model = make_model(nodes, {"x": (FLOAT, [2, 3])}, {"q": (FLOAT, [6]), "r": (FLOAT, [2, 3])}, initializers=[shape])
    result, (adaptation,) = adapted(model)
    assert adaptation.what == "Sigmoid is computed as 1 / (1 + exp(-x)), for small results"
    assert len(adaptation.nodes) == 1
    assert "head" in adaptation.nodes[0]
    x = np.array([[-87, -40, -15], [-1, 0, 200]], np.float32)
    probabilities, _ = run(result, tmp_path, x)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-x.ravel().astype(np.float64))), rtol=1e-6)
    assert [n.op_type for n in result.graph].count("Sigmoid") == 1
