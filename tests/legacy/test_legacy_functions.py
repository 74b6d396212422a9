"""autograd.Functions with a ``symbolic``: one node each while the bridge is on, whatever their form."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.autograd import Function

import opbridge
from opbridge import legacy
from opbridge.capture.capture import capture
from opbridge.capture.entry import Entry
from opbridge.errors import CaptureError, InputError
from opbridge.legacy.function_calls import function_of
from opbridge.legacy.switch import is_on

pytestmark = pytest.mark.one_worker


class Plain(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def symbolic(g, x, scale):
        return g.op("t::Plain", x, scale_f=scale)


plain = Plain.apply


class Separate(Function):
    @staticmethod
    def forward(x, scale=2.0):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        assert not is_on(), "nothing is differentiated"

    @staticmethod
    def symbolic(g, x, scale):
        return g.op("t::Separate", x, scale_f=scale)


class OnClass(Function):
    scale = 3.0

    @classmethod
    def forward(cls, ctx, x):
        return x * cls.scale

    @classmethod
    def symbolic(cls, g, x):
        return g.op("t::OnClass", x, scale_f=cls.scale)


class ContextFree(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return g.op("t::ContextFree", x)


class Named(Function):
    @staticmethod
    def forward(ctx, x, scale=1.0, *, bias=0.0):
        return x * scale + bias

    @staticmethod
    def symbolic(g, x, *rest, bias=0.0, unused=7):
        return g.op("t::Named", x, rest_f=list(rest), bias_f=bias, unused_i=unused)


class Config:
    alpha = 0.25


CONFIG, LINEAR, OPTIONS = Config(), torch.nn.Linear(2, 2), {"deep": [1, {"flag": None}]}


class Odd(Function):
    @staticmethod
    def forward(ctx, x, config, module, function, dtype, nothing, options):
        return function(x).to(dtype) * config.alpha

    @staticmethod
    def symbolic(g, x, config, module, function, dtype, nothing, options):
        given = (config, module, function, dtype, nothing)
        assert all(a is b for a, b in zip(given, (CONFIG, LINEAR, torch.sin, torch.float64, None), strict=True))
        assert options == OPTIONS
        return g.op("t::Odd", x, alpha_f=config.alpha)


class Several(Function):
    @staticmethod
    def forward(ctx, tensors, sizes):
        return torch.stack(tensors["all"]).sum(0), None, tensors["all"][1] + sizes[1]

    @staticmethod
    def symbolic(g, tensors, sizes):
        return g.op("t::Several", *tensors["all"], sizes_i=list(sizes), outputs=2)


class LateSymbolic(Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Inner", x)


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        return Inner.apply(x) + 1

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Outer", x)


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def symbolic(g, x):
        return g.op("t::InPlace", x)


class ItsInput(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return x


def made_by(power):
    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            return x**power

        @staticmethod
        def symbolic(g, x):
            return g.op("t::Made", x, power_i=power)

    return Made


def late(x):
    LateSymbolic.symbolic = staticmethod(lambda g, x: g.op("t::Late", x))
    return LateSymbolic.apply(x)


def in_place(x):
    y = x.neg()
    InPlace.apply(y)
    return y.abs()


def twice(x):
    return plain(plain(x, 2.0), 2.0)


CASES: dict[str, Any] = {
    "apply bound at import": (lambda x: plain(x, 2.0), "t.Plain {'scale': 2.0}"),
    "setup_context": (lambda x: Separate.apply(x), "t.Separate {'scale': 2.0}"),
    "setup_context by keyword": (lambda x: Separate.apply(x, scale=4.0), "t.Separate {'scale': 4.0}"),
    "classmethods and class attributes": (OnClass.apply, "t.OnClass {'scale': 3.0}"),
    "forward without ctx": (ContextFree.apply, "t.ContextFree {}"),
    "by keyword": (lambda x: Named.apply(x, scale=2.0), "t.Named {'bias': 0.0, 'rest': [2.0], 'unused': 7}"),
    "untouched arguments": (
        lambda x: Odd.apply(x, CONFIG, LINEAR, torch.sin, torch.float64, None, OPTIONS), "t.Odd {'alpha': 0.25}"
    ),
    "nested tensors, None among the results": (
        lambda x: Several.apply({"all": [x, x.neg()]}, (2, 3))[2], "t.Several {'sizes': [2, 3]}"
    ),
    "closure": (lambda x: made_by(2).apply(x), "t.Made {'power': 2}"),
    "symbolic assigned while the model runs": (late, "t.Late {}"),
    "the outer of nested ones": (Outer.apply, "t.Outer {}"),
    "changed in place": (in_place, "Abs {} of t.InPlace"),
    "returns its input": (lambda x: ItsInput.apply(x.relu()), "Relu {}"),
    "twice": (twice, "t.Plain {'scale': 2.0} of t.Plain"),
}  # fmt: skip


class All(torch.nn.Module):
    def forward(self, x):
        return tuple(function(x) for name, (function, _) in CASES.items() if legacy_only(name))


def legacy_only(name: str) -> bool:
    """PyTorch itself refuses a forward without ctx, so it has no place in a model exported with the bridge off."""
    return name != "forward without ctx" or is_on()


def described(model: Any) -> list[str]:
    found = []
    for output in model.graph.outputs:
        node = output.producer()
        values = {key: _plain(attribute) for key, attribute in node.attributes.items()}
        inner = node.inputs[0].producer() if node.inputs else None
        behind = f" of {inner.domain}.{inner.op_type}" if inner is not None and inner.domain else ""
        found.append(f"{node.domain}.{node.op_type} {values}".lstrip(".") + behind)
    return found


def _plain(attribute: Any) -> Any:
    value = attribute.value
    return [round(item, 4) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="module")
def exported() -> list[str]:
    with legacy.enable():
        return described(torch.onnx.export(All().eval(), (torch.randn(2, 3),)).model)


@pytest.mark.quick("apply bound at import", every=3)
@pytest.mark.parametrize("name", CASES)
def test_a_call_becomes_what_its_symbolic_builds(exported: list[str], name: str) -> None:
    assert exported[list(CASES).index(name)] == CASES[name][1]


@pytest.mark.slow
def test_with_the_bridge_off_none_of_it_does() -> None:
    found = described(torch.onnx.export(All().eval(), (torch.randn(2, 3),)).model)
    expected = [text for name, (_, text) in CASES.items() if name != "forward without ctx"]
    assert len(found) == len(expected)
    assert [one for one, text in zip(found, expected, strict=True) if one == text] == []


def targets_of(program: torch.export.ExportedProgram) -> list[str]:
    calls = [function_of(node.target) for node in program.graph.nodes]
    return [call.display_name for call in calls if call is not None]


def captured(function: Any, *inputs: torch.Tensor, **options: Any) -> Any:
    with legacy.enable():
        return capture(function, inputs, **options)


def remarks(function: Any, *inputs: torch.Tensor, **options: Any) -> Any:
    """The remarks of the export of a function that calls one autograd.Function."""

    class Net(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    with legacy.enable():
        torch.onnx.export(Net(), inputs, **options)
        return next(item for item in legacy.bridged() if item.kind == "autograd.Function")


def test_equal_calls_share_an_operator_and_others_do_not() -> None:
    program = captured(lambda x: twice(x) + plain(x, 3.0), torch.randn(2)).program
    used = [node.target for node in program.graph.nodes if function_of(node.target) is not None]
    assert len(used) == 3
    assert len(set(used)) == 2


def test_a_symbolic_on_the_class_is_one_operator_too() -> None:
    program = captured(lambda x: OnClass.apply(OnClass.apply(x)), torch.randn(2)).program
    assert len({node.target for node in program.graph.nodes if function_of(node.target) is not None}) == 1


class Sizes(Function):
    @staticmethod
    def forward(ctx, x, sizes):
        return x * sum(sizes["all"])

    @staticmethod
    def symbolic(g, x, sizes):
        return g.op("t::Sizes", x, sizes_i=sizes["all"])


def test_a_list_that_changes_after_the_call_is_the_one_of_the_call() -> None:
    def model(x):
        sizes = {"all": [1, 2]}
        x = Sizes.apply(x, sizes)
        sizes["all"].append(3)
        return Sizes.apply(x, sizes)

    with legacy.enable():
        nodes = list(torch.onnx.export(model, (torch.randn(2),)).model.graph)
    assert [list(node.attributes["sizes"].as_ints()) for node in nodes] == [[1, 2], [1, 2, 3]]


def test_a_dynamic_number_is_an_input_of_the_node() -> None:
    found = captured(lambda x: Plain.apply(x, x.shape[0]), torch.randn(4, 2), dynamic_shapes=({0: "n"},))
    (node,) = [node for node in found.program.graph.nodes if function_of(node.target) is not None]
    assert len(node.args) == 2
    assert str(node.args[1].meta["val"]) == str(node.args[0].meta["val"].shape[0])


class ReadsNumbers(Function):
    @staticmethod
    def forward(ctx, x, scales):
        return torch.nn.functional.interpolate(x, scale_factor=scales.tolist()[-2:], mode="bicubic", align_corners=True)

    @staticmethod
    def symbolic(g, x, scales):
        return g.op("t::Resize", x, scales)


class ReadsMemory(Function):
    @staticmethod
    def forward(ctx, x):
        return x.repeat(2, 1) + 0 * x.data_ptr()

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Repeat", x)


@pytest.mark.parametrize(
    ("function", "inputs", "rank"),
    [
        (lambda x, s: ReadsNumbers.apply(x, s), (torch.randn(1, 2, 4, 4), torch.tensor([1.0, 1.0, 2.0, 2.0])), 4),
        (lambda x: ReadsMemory.apply(x), (torch.randn(2, 3),), 2),
    ],
)
def test_a_size_that_needs_contents_is_dynamic_and_never_frozen(function: Any, inputs: Any, rank: int) -> None:
    found = captured(function, *inputs)
    (output,) = found.program.graph.output_node().args[0]
    shape = output.meta["val"].shape
    assert len(shape) == rank
    assert all(isinstance(size, torch.SymInt) for size in shape)
    item = remarks(function, *inputs)
    (note,) = item.notes
    assert "so all sizes of its results are unknown during the export" in note
    assert f"opbridge.fake_for({item.name})" in note


def test_a_size_that_follows_from_an_input_needs_no_remark() -> None:
    assert remarks(lambda x: Plain.apply(x, 2), torch.randn(4, 2), dynamic_shapes=[[{0: "n"}]]).notes == ()


class WithFake(ReadsMemory):
    pass


@opbridge.fake_for(WithFake)
def _(x):
    return x.new_empty(2 * x.shape[0], x.shape[1])


def test_fake_for_gives_the_shapes_of_a_function() -> None:
    found = captured(lambda x: WithFake.apply(x), torch.randn(2, 3), dynamic_shapes=({0: "n"},))
    (output,) = found.program.graph.output_node().args[0]
    assert str(output.meta["val"].shape[0]).startswith("2*")
    assert output.meta["val"].shape[1] == 3


def test_fake_for_wants_a_function() -> None:
    with pytest.raises(InputError, match=r"fake_for\(Config\): the class is not a torch.autograd.Function"):
        opbridge.fake_for(Config)


class Impossible(Function):
    @staticmethod
    def forward(ctx, x):
        raise ValueError(f"only on the device, not {x.numpy().shape}")

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Impossible", x)


def test_a_forward_that_runs_nowhere_names_fake_for() -> None:
    with pytest.raises(CaptureError, match=r"The shapes of the results of Impossible are unknown") as raised:
        captured(lambda x: Impossible.apply(x), torch.randn(2))
    assert "only on the device" in str(raised.value)
    assert "@opbridge.fake_for(Impossible)" in raised.value.fix


class Forgets(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        return x.sum()

    @staticmethod
    def symbolic(g, x):
        return g.op("t::Forgets", x)


def test_a_change_that_symbolic_cannot_give_is_told() -> None:
    item = remarks(lambda x: Forgets.apply(x.neg()), torch.randn(3))
    assert "forward modifies an input in place and does not return it" in item.notes[0]


def test_the_operator_computes_what_forward_computes_and_changes_nothing() -> None:
    found = captured(in_place, torch.randn(3)).program
    (node,) = [node for node in found.graph.nodes if function_of(node.target) is not None]
    x = torch.randn(3)
    (result,) = node.target(before := x.clone())
    assert torch.equal(result, 2 * x)
    assert torch.equal(before, x)


def test_calling_forward_directly_is_no_call_of_the_function() -> None:
    assert targets_of(captured(lambda x: Inner.forward(None, x), torch.randn(2)).program) == []


def test_another_thread_runs_the_original_meanwhile() -> None:
    other: list[torch.Tensor] = []

    def model(x):
        thread = threading.Thread(target=lambda: other.append(Plain.apply(torch.ones(2), 5.0)))
        thread.start()
        thread.join()
        return Plain.apply(x, 2.0)

    assert targets_of(captured(model, torch.randn(2)).program) == ["Plain"]
    assert torch.equal(other[0], torch.full((2,), 5.0))


@pytest.mark.parametrize(
    "asks", ["torch.onnx.is_in_onnx_export", "torch.jit.is_tracing", "torch._C._get_tracing_state"]
)
def test_a_model_that_asks_is_in_an_export(asks: str) -> None:
    def model(x):
        return plain(x, 2.0) if eval(asks)() else x

    assert targets_of(captured(model, torch.randn(2)).program) == ["Plain"]
    assert not eval(asks)()
    assert targets_of(capture(model, (torch.randn(2),)).program) == []


@pytest.mark.slow
def test_inside_a_branch_it_is_an_error_and_not_dropped() -> None:
    def model(x):
        return torch.cond(x.sum() > 0, lambda x: plain(x, 2.0), lambda x: x - 1, (x,))

    with pytest.raises(CaptureError, match="Plain is called inside a branch or a loop body"):
        captured(model, torch.randn(2))


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x + x

    @staticmethod
    def symbolic(g, x):
        return g.op("Add", x, x)


class Dummy(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.rand_like(x)

    @staticmethod
    def symbolic(g, x):
        return g.op("Cos", x)


class Pass(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def symbolic(g, x):
        return x


class Probability(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sigmoid()

    @staticmethod
    def symbolic(g, x):
        return g.op("Sigmoid", x)


def test_the_model_for_an_engine_has_the_nodes_that_symbolic_wrote(tmp_path: Path) -> None:
    with legacy.enable():
        bundle = opbridge.export(lambda x: Probability.apply(Pass.apply(x)), torch.randn(2), path=tmp_path / "b")
    model = onnx.load(bundle.path / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["Sigmoid"]
    assert not model.graph.node[0].metadata_props
    assert bundle.verified


@pytest.mark.slow
def test_a_stand_in_is_neither_passed_nor_failed(tmp_path: Path) -> None:
    with legacy.enable():
        bundle = opbridge.export(
            lambda x: (Double.apply(x), Dummy.apply(x) + 1), torch.randn(2, 3), path=tmp_path / "b"
        )
    verification = bundle.verification
    assert not bundle.verified
    assert verification["verdict"] == "not verified"
    assert "Dummy (used at " in verification["error"]
    assert "its forward does not compute what its symbolic at " in verification["error"]
    assert [item["status"] for item in verification["comparisons"]] == ["equal", "not compared"]
    assert "Dummy, whose forward does not compute" in verification["comparisons"][1]["detail"]
    x = np.random.rand(2, 3).astype(np.float32)
    np.testing.assert_allclose(opbridge.load(bundle.path).run({"x": x})["output_1"], np.cos(x) + 1, rtol=1e-6)
    assert json.dumps(verification)


class Drawn(Function):
    """A placeholder whose forward draws numbers, as those for NMS do."""

    @staticmethod
    def forward(ctx, x):
        return torch.rand_like(x)

    @staticmethod
    def symbolic(g, x):
        return g.op("Sigmoid", x)


class DrawnTwice(Drawn):
    @staticmethod
    def symbolic(g, x):
        return g.op("RandomUniformLike", x)


@pytest.mark.quick(every=2)
@pytest.mark.parametrize(("function", "verdict"), [(Drawn, "not verified"), (DrawnTwice, "passed")])
def test_numbers_that_only_forward_draws_are_no_reference(function: Any, verdict: str, tmp_path: Path) -> None:
    # The numbers of the sigmoid of an input of this shape may agree by chance.
    for shape in ((1, 1), (4, 8)):
        with legacy.enable():
            bundle = opbridge.export(lambda x: function.apply(x), torch.randn(shape), path=tmp_path / str(shape))
        assert bundle.verification["verdict"] == verdict


def test_verifying_with_the_bridge_off_says_that_it_is(tmp_path: Path) -> None:
    model, x = torch.nn.Sequential(Calls(Dummy)).eval(), torch.randn(2, 3)
    with legacy.enable():
        opbridge.export(model, x, path=tmp_path / "b", verify=False)
    found = opbridge.verify(tmp_path / "b", reference=Entry("model", model, (x,)))
    assert found.verdict == "failed"
    assert found.error is not None
    text = "The model was captured with the bridge off, so Dummy was compared with its forward, not with its symbolic."
    assert found.error.startswith(text)
    assert "opbridge.legacy.enable() first" in found.error


def test_a_program_with_functions_is_not_saved_as_a_reference(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="with_reference: the model calls Double") as raised, legacy.enable():
        opbridge.export(Calls(Double).eval(), torch.randn(2), path=tmp_path / "b", with_reference=True)
    assert "reference='file.py:function'" in raised.value.fix
    assert not (tmp_path / "b").exists()


class Calls(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def test_a_failure_that_is_no_functions_fault_stays_one() -> None:
    from opbridge.proof.verify.comparability import reconsidered
    from opbridge.proof.verify.verification import CaseResult, Comparison, Verification

    with legacy.enable():
        found = capture(lambda x: Double.apply(x), (torch.randn(2),))
    failed = Verification(
        "onnxruntime", "failed", (CaseResult("c", verdict="failed"),), (Comparison("output", "c", "differs"),), {}, 0
    )
    assert reconsidered(failed, found, "onnxruntime") is failed


def test_with_the_bridge_off_diagnose_finds_them_and_says_how_to_turn_it_on() -> None:
    diagnosis = opbridge.diagnose(lambda x: Outer.apply(x), torch.randn(2))
    found = [item for item in diagnosis.findings if item.code == "ignored-symbolic"]
    assert [finding.target for finding in found] == ["Outer", "Inner"]
    finding = found[0]
    assert finding.severity == "warning"
    assert "Outer.symbolic at tests/legacy/test_legacy_functions.py:" in finding.message
    assert "is not called, because the modern exporter inlines forward." in finding.message
    assert "opbridge.legacy.enable()" in finding.fix
    assert "opbridge run-script" in finding.fix
    with legacy.enable():
        diagnosis = opbridge.diagnose(lambda x: Double.apply(x), torch.randn(2))
    assert [item.code for item in diagnosis.findings if item.code.startswith("ignored")] == []
    assert [link.target for link in diagnosis.operators] == ["autograd_function::Double"]


def test_a_forward_that_can_not_be_captured_names_the_bridge() -> None:
    with pytest.raises(CaptureError, match=r"The forward of ReadsMemory at .* can't be captured") as raised:
        capture(lambda x: ReadsMemory.apply(x), (torch.randn(2, 3),))
    assert "ReadsMemory.symbolic at " in raised.value.message
    assert "opbridge.legacy.enable()" in raised.value.fix


def test_a_registration_that_is_ignored_is_found() -> None:
    torch.onnx.register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("t::Asinh", x), 9)
    try:
        diagnosis = opbridge.diagnose(torch.asinh, torch.randn(2))
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::asinh", 9)
    (finding,) = [item for item in diagnosis.findings if item.code == "ignored-registration"]
    assert finding.target == "aten::asinh"
    assert "registered for aten::asinh is not called" in finding.message
    assert "opbridge.legacy.enable()" in finding.fix
