"""A model is checked in memory: the check finds what would make the written model invalid, and names the node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("onnx_ir")

import numpy as np
import onnx_ir as ir
from checked_passes import refused_by_onnx

from opbridge.errors import TranslationError
from opbridge.onnx_model.validity import check_change, interface_problems, problems

pytestmark = pytest.mark.newest

TEXT = """
<ir_version: 10, opset_import: ["": 18, "own": 1]>
g (float[n, 4] x, bool c) => (float[n, 4] y) {
    [first] a = Relu(x)
    [second] b = own.double(a)
    [third] y = If(c) <
        then_branch = t () => (float[n, 4] u) { [inner] u = Neg(b) },
        else_branch = e () => (float[n, 4] v) { v = Identity(x) }
    >
}
<domain: "own", opset_import: ["": 18]>
double (i) => (o) { o = Add(i, i) }
"""


def model() -> ir.Model:
    return ir.from_onnx_text(TEXT)


def node(of: ir.Model, name: str) -> ir.Node:
    return next(item for item in of.graph.all_nodes() if item.name == name)


def test_a_valid_model_has_no_problems() -> None:
    assert problems(model()) == ()
    assert interface_problems(model(), model()) == ()
    check_change("A pass", model(), model())
    assert not refused_by_onnx(model())


def reads_nothing(of: ir.Model) -> None:
    node(of, "first").replace_input_with(0, ir.Value(name="lost"))


def reads_a_twin(of: ir.Model) -> None:
    """A constant that lost its place among the initializers to another of its name: the file would hold the other."""
    for number in (1.0, 2.0):
        twin = ir.Value(name="twin", const_value=ir.tensor(np.float32(number)))
        of.graph.initializers["twin"] = twin
        if number == 1.0:
            node(of, "first").replace_input_with(0, twin)


def wrong_order(of: ir.Model) -> None:
    first = node(of, "first")
    of.graph.remove(first)
    of.graph.append(first)


def same_name(of: ir.Model) -> None:
    node(of, "second").outputs[0].name = "a"


def lost_inside(of: ir.Model) -> None:
    node(of, "inner").replace_input_with(0, ir.Value(name="far"))


def no_output(of: ir.Model) -> None:
    of.graph.outputs[0] = ir.Value(name="z")


def unknown_attribute(of: ir.Model) -> None:
    node(of, "first").attributes["slope"] = ir.AttrFloat32("slope", 1.0)


def wrong_attribute(of: ir.Model) -> None:
    node(of, "first").op_type = "Softmax"
    node(of, "first").attributes["axis"] = ir.AttrFloat32("axis", 1.0)


def missing_attribute(of: ir.Model) -> None:
    node(of, "first").op_type = "Cast"


def missing_input(of: ir.Model) -> None:
    node(of, "first").op_type = "Add"


def unknown_operator(of: ir.Model) -> None:
    node(of, "first").op_type = "RELU"


def newer_operator(of: ir.Model) -> None:
    node(of, "first").op_type = "Gelu"  # opset 20


def removed_operator(of: ir.Model) -> None:
    node(of, "first").op_type = "Upsample"  # until opset 9


def no_import(of: ir.Model) -> None:
    node(of, "second").domain = "other"


def stray_reference(of: ir.Model) -> None:
    node(of, "first").op_type = "Softmax"
    node(of, "first").attributes["axis"] = ir.RefAttr("axis", "axis", ir.AttributeType.INT)


def broken_body(of: ir.Model) -> None:
    (function,) = of.functions.values()
    function[0].replace_input_with(0, ir.Value(name="nowhere"))


def too_many_inputs(of: ir.Model) -> None:
    call = node(of, "second")
    call.resize_inputs(2)
    call.replace_input_with(1, of.graph.inputs[0])


BROKEN: list[tuple[Callable[[ir.Model], None], str]] = [
    (reads_nothing, "'first' (ai.onnx::Relu) reads 'lost', which nothing before it produces"),
    (reads_a_twin, "'first' (ai.onnx::Relu) reads 'twin', which is the name of another value in the file"),
    (wrong_order, "'second' (own::double) reads 'a', which nothing before it produces"),
    (same_name, "'second' (own::double) produces 'a', which something before it produces too"),
    (lost_inside, "'inner' (ai.onnx::Neg) reads 'far', which nothing before it produces"),
    (no_output, "'z' is an output, which nothing before it produces"),
    (unknown_attribute, "'first' (ai.onnx::Relu) has no attribute 'slope' at version 14"),
    (wrong_attribute, "'first' (ai.onnx::Softmax) has the attribute 'axis' as FLOAT"),
    (missing_attribute, "'first' (ai.onnx::Cast) lacks the attribute 'to'"),
    (missing_input, "'first' (ai.onnx::Add) has 1 inputs and needs 2"),
    (unknown_operator, "'first' (ai.onnx::RELU) is no operator of opset 18"),
    (newer_operator, "'first' (ai.onnx::Gelu) is no operator of opset 18"),
    (removed_operator, "'first' (ai.onnx::Upsample) is not an operator of this opset: version 10 removed it"),
    (no_import, "'second' (other::double) is in the domain 'other', for which no opset is imported"),
    (too_many_inputs, "'second' (own::double) has more inputs or outputs than its function"),
    (stray_reference, "'first' (ai.onnx::Softmax) refers to the attribute 'axis', which no function around it has"),
    (broken_body, "reads 'nowhere', which nothing before it produces"),
]


@pytest.mark.parametrize(("damage", "reason"), BROKEN, ids=lambda item: getattr(item, "__name__", ""))
def test_the_node_and_the_reason_are_named(damage: Callable[[ir.Model], None], reason: str) -> None:
    broken = model()
    damage(broken)
    found = problems(broken)
    assert reason in str(found[0])
    with pytest.raises(TranslationError, match="SomePass wrote an invalid model") as caught:
        check_change("SomePass", broken, model())
    assert reason in caught.value.message
    as_given = model()
    damage(as_given)
    check_change("SomePass", broken, as_given)  # What was wrong before is not the pass's doing.


def fixed_size(of: ir.Model) -> None:
    of.graph.inputs[0].shape = ir.Shape([2, 4])


def lost_input(of: ir.Model) -> None:
    node(of, "third").replace_input_with(0, ir.Value(name="k", const_value=ir.tensor(np.array(True))))
    of.graph.initializers["k"] = node(of, "third").inputs[0]
    del of.graph.inputs[1]


def other_type(of: ir.Model) -> None:
    of.graph.inputs[0].dtype = ir.DataType.FLOAT16


def other_rank(of: ir.Model) -> None:
    of.graph.inputs[0].shape = ir.Shape(["n", 4, 1])


def body_for_one_size(of: ir.Model) -> None:
    node(of, "second").inputs[0].shape = ir.Shape(["n", 4])
    (function,) = of.functions.values()
    function.inputs[0].shape = ir.Shape([2, 4])


INTERFACES: list[tuple[Callable[[ir.Model], None], str]] = [
    (fixed_size, "'x' has the dynamic dimension 'n' at axis 0, which is now 2"),
    (lost_input, "'graph' had the inputs x, c and now has x"),
    (other_type, "'x' was FLOAT and is now FLOAT16"),
    (other_rank, "'x' had 2 dimensions and now has 3"),
    (body_for_one_size, "'second' (own::double) passes 'a', whose axis 0 is dynamic, to a body for the size 2"),
]


@pytest.mark.parametrize(("change", "reason"), INTERFACES, ids=lambda item: getattr(item, "__name__", ""))
def test_a_pass_keeps_inputs_outputs_and_dynamic_dimensions(change: Callable[[ir.Model], None], reason: str) -> None:
    changed = model()
    change(changed)
    assert [str(item) for item in interface_problems(model(), changed)] == [reason]
    with pytest.raises(TranslationError, match="SomePass wrote an invalid model"):
        check_change("SomePass", changed, model())


class FixingPass(ir.passes.InPlacePass):
    """A pass as it must not be: the checks of the tests see it, because it claims to be opbridge's."""

    __module__ = "opbridge.engines.passes.fixing"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        fixed_size(model)
        return ir.passes.PassResult(model, True)


def test_every_pass_in_the_tests_is_checked() -> None:
    with pytest.raises(TranslationError, match=r"FixingPass wrote an invalid model: 'x' has the dynamic dimension 'n'"):
        FixingPass()(model())
