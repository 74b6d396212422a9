"""What an engine refuses, wherever in the model it is."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from one_node import BFLOAT16, DOUBLE, FLOAT, make_model, one_node, to_ir, value_info
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from opbridge import engines
from opbridge.engines.asked import AskedEngine
from opbridge.engines.base import Refusal, RefusalKind
from opbridge.engines.probe import probe

ENGINE = engines.get("onnxruntime")
IMAGE = ("FLOAT", [1, 3, 8, 8])


def node(op_type, inputs, outputs, name=None, **attributes):
    return helper.make_node(op_type, inputs, outputs, name=name or f"node_{outputs[0]}", **attributes)


def function(name, inputs, outputs, nodes, *, domain="mine", **options):
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
    return helper.make_function(domain, name, inputs, outputs, nodes, imports, **options)


def call_model(typed, functions, *, op_type="F", domain="mine", **attributes):
    return to_ir(one_node(op_type, [typed], [typed], domain=domain, functions=functions, **attributes))


def test_a_model_that_is_taken():
    model = make_model(
        [node("Relu", ["x"], ["a"]), node("Add", ["a", "a"], ["y"])], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])}
    )
    assert probe(to_ir(model), ENGINE) == ()


def test_every_refused_node_is_named():
    model = make_model(
        [
            node("Frob", ["x"], ["a"], domain="mine"),
            node("Where", ["c", "a", "x"], ["b"]),
            node("Frob", ["b"], ["y"], domain="mine"),
        ],
        {"x": ("BOOL", [2]), "c": ("BOOL", [2])},
        {"y": ("BOOL", [2])},
        domains=["mine"],
    )
    typed = to_ir(model)
    for each in typed.graph:
        each.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
    refusals = probe(typed, ENGINE)
    assert [(refusal.node, refusal.operator) for refusal in refusals] == [
        ("node_a", "mine::Frob"),
        ("node_b", "ai.onnx::Where"),
        ("node_y", "mine::Frob"),
    ]
    assert refusals[0].reason == "no kernel for mine::Frob"
    assert refusals[1].missing_dtypes == ("bool",)


def test_types_that_the_model_does_not_state_are_inferred_without_changing_it():
    model = to_ir(
        make_model(
            [node("Relu", ["x"], ["a"]), node("Conv", ["a", "w"], ["y"])],
            {"x": (DOUBLE, [1, 3, 8, 8]), "w": (DOUBLE, [1, 3, 3, 3])},
            {"y": (DOUBLE, None)},
        )
    )
    (refusal,) = probe(model, ENGINE)
    assert refusal.node == "node_y"
    assert refusal.missing_dtypes == ("float64",)
    assert model.graph[0].outputs[0].type is None


def test_a_node_of_unknown_types_is_judged_by_what_is_known():
    model = make_model(
        [node("Frob", ["x"], ["a"], domain="mine"), node("Relu", ["a"], ["b"]), node("Conv", ["b", "w"], ["y"])],
        {"x": (FLOAT, [2]), "w": (DOUBLE, [1, 3, 3, 3])},
        {"y": (DOUBLE, None)},
        domains=["mine"],
    )
    assert [refusal.node for refusal in probe(to_ir(model), ENGINE)] == ["node_a", "node_y"]


def test_sequences_keep_their_type():
    model = make_model(
        [
            node("SequenceConstruct", ["x", "x"], ["s"]),
            node("ReverseSequenceOfMine", ["s"], ["t"], domain="mine"),
            node("SequenceLength", ["s"], ["y"]),
        ],
        {"x": (FLOAT, [2])},
        {"y": ("INT64", [])},
        domains=["mine"],
    )
    assert [refusal.node for refusal in probe(to_ir(model), ENGINE)] == ["node_t"]


def branch(name, op_type, source="x", **options):
    return helper.make_graph(
        [node(op_type, [source], [f"{name}_out"], **options)], name, [], [value_info(f"{name}_out", (FLOAT, [2]))]
    )


def test_subgraphs_are_walked():
    inner = helper.make_graph(
        [
            node(
                "If",
                ["c"],
                ["inner_out"],
                then_branch=branch("deep", "Frob", domain="mine"),
                else_branch=branch("b", "Abs"),
            )
        ],
        "inner",
        [],
        [value_info("inner_out", (FLOAT, [2]))],
    )
    model = make_model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=branch("e", "Relu"))],
        {"x": (FLOAT, [2]), "c": ("BOOL", [])},
        {"y": (FLOAT, [2])},
        domains=["mine"],
    )
    assert probe(to_ir(model), ENGINE) == (
        Refusal("node_deep_out", "mine::Frob", "no kernel for mine::Frob", kind=RefusalKind.UNKNOWN_OPERATOR),
    )


def test_a_loop_is_taken():
    body = helper.make_graph(
        [node("Identity", ["cond"], ["again"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [value_info("i", ("INT64", [])), value_info("cond", ("BOOL", [])), value_info("v", (FLOAT, [2]))],
        [value_info("again", ("BOOL", [])), value_info("w", (FLOAT, [2]))],
    )
    model = make_model(
        [node("Loop", ["trips", "", "x"], ["y"], body=body)],
        {"trips": ("INT64", []), "x": (FLOAT, [2])},
        {"y": (FLOAT, [2])},
    )
    assert probe(to_ir(model), ENGINE) == ()


def test_a_function_counts_as_its_body():
    taken = function("F", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    assert probe(call_model((FLOAT, [2]), [taken]), ENGINE) == ()
    refused = function("F", ["a"], ["b"], [node("Frob", ["a"], ["b"], "inside", domain="mine")])
    assert probe(call_model((FLOAT, [2]), [refused]), ENGINE) == (
        Refusal(
            "the_node",
            "mine::Frob",
            "no kernel for mine::Frob, in the body of mine::F",
            kind=RefusalKind.UNKNOWN_OPERATOR,
        ),
    )


def test_a_body_is_asked_with_the_types_of_each_call():
    body = function("F", ["a", "w"], ["b"], [node("Relu", ["a"], ["r"]), node("Conv", ["r", "w"], ["b"])])
    model = make_model(
        [node("F", ["x", "v"], ["y"], domain="mine"), node("F", ["x64", "v64"], ["y64"], domain="mine")],
        {"x": IMAGE, "v": IMAGE, "x64": (DOUBLE, IMAGE[1]), "v64": (DOUBLE, IMAGE[1])},
        {"y": (FLOAT, None), "y64": (DOUBLE, None)},
        functions=[body],
        domains=["mine"],
    )
    (refusal,) = probe(to_ir(model), ENGINE)
    assert refusal.node == "node_y64"
    assert refusal.operator == "ai.onnx::Conv"
    assert refusal.missing_dtypes == ("float64",)


def test_a_body_is_asked_with_the_attributes_of_the_call_and_without_absent_inputs():
    cast = node("Cast", ["a"], ["c"])
    reference = onnx.AttributeProto(name="to", ref_attr_name="dtype", type=onnx.AttributeProto.INT)
    cast.attribute.append(reference)
    body = function(
        "F",
        ["a", "low"],
        ["b"],
        [cast, node("Clip", ["c", "low"], ["d"]), node("Cos", ["d"], ["b"])],
        attributes=["dtype"],
    )
    model = make_model(
        [
            node("F", ["x"], ["y"], domain="mine", dtype=int(TensorProto.FLOAT)),
            node("F", ["x"], ["z"], domain="mine", dtype=int(TensorProto.BFLOAT16)),
        ],
        {"x": (FLOAT, [2])},
        {"y": (FLOAT, [2]), "z": (BFLOAT16, [2])},
        functions=[body],
        domains=["mine"],
    )
    # Clip without any bound is nothing; with an input that is there, it would lack bfloat16 like Cos.
    (refusal,) = probe(to_ir(model), ENGINE)
    assert (refusal.node, refusal.operator) == ("node_z", "ai.onnx::Cos")


def test_functions_in_functions():
    inner = function("Inner", ["a"], ["b"], [node("Frob", ["a"], ["b"], domain="mine")])
    outer = function("F", ["a"], ["b"], [node("Relu", ["a"], ["r"]), node("Inner", ["r"], ["b"], domain="mine")])
    (refusal,) = probe(call_model((FLOAT, [2]), [inner, outer]), ENGINE)
    assert refusal.node == "the_node"
    assert refusal.reason == "no kernel for mine::Frob, in the body of mine::Inner, in the body of mine::F"


def test_an_operator_that_the_engine_knows_wins_over_the_body():
    gelu = function("Gelu", ["a"], ["b"], [node("Relu", ["a"], ["b"])], domain="com.microsoft")
    assert probe(call_model((FLOAT, [2]), [gelu], op_type="Gelu", domain="com.microsoft"), ENGINE) == ()
    (refusal,) = probe(call_model((DOUBLE, [2]), [gelu], op_type="Gelu", domain="com.microsoft"), ENGINE)
    assert refusal.operator == "com.microsoft::Gelu"
    assert "the body" not in refusal.reason


def test_an_engine_without_functions(monkeypatch):
    engine = type(ENGINE)()
    monkeypatch.setattr(type(ENGINE), "takes_functions", False)
    taken = function("F", ["a"], ["b"], [node("Relu", ["a"], ["b"])])
    (refusal,) = probe(call_model((FLOAT, [2]), [taken]), engine)
    assert refusal.reason == "onnxruntime takes no model-local functions"


def test_constants_decide_but_large_ones_cost_nothing():
    large = numpy_helper.from_array(np.zeros((512, 1024), np.float32), "w")
    sizes = numpy_helper.from_array(np.array([2, 512], np.int64), "sizes")
    model = make_model(
        [node("MatMul", ["x", "w"], ["a"]), node("Reshape", ["a", "sizes"], ["b"]), node("Relu", ["b"], ["y"])],
        {"x": (FLOAT, [1, 512])},
        {"y": (FLOAT, [2, 512])},
        initializers=[large, sizes],
    )
    assert probe(to_ir(model), ENGINE) == ()


def test_equal_nodes_are_one_question(monkeypatch):
    nodes = [node("Conv", [f"v{i}", "w"], [f"v{i + 1}"], pads=[7, 7, 7, 7]) for i in range(500)]
    model = make_model(nodes, {"v0": IMAGE, "w": ("FLOAT", [3, 3, 15, 15])}, {"v500": IMAGE})
    converted = to_ir(onnx.shape_inference.infer_shapes(model))
    # What is asked once in a process is none of the nodes'.
    probe(to_ir(one_node("Relu", [IMAGE], [IMAGE])), ENGINE)
    asked = []
    answer = AskedEngine.answer

    def counted(*args):
        asked.append(args)
        return answer(*args)

    monkeypatch.setattr(AskedEngine, "answer", counted)
    assert probe(converted, ENGINE) == ()
    assert 1 <= len(asked) <= 2


@pytest.mark.sweep
def test_it_agrees_with_loading_the_whole_model_on_the_standards_own_test_cases():
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    disagreements, counts = [], {True: 0, False: 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    # All of them agree; every sixth keeps the test short.
    for case in cases[::6]:
        try:
            onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            error = None
        except Exception as raised:
            error = str(raised)
        refusals = probe(to_ir(case.model), ENGINE)
        counts[error is None] += 1
        if bool(refusals) is not (error is not None):
            disagreements.append((case.name, error, refusals))
    assert not disagreements
    assert min(counts.values()) > 5
