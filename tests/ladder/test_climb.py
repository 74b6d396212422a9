"""Plan, translate and climb: the rung of every operator, the lowest opset, and what happens when an engine refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from onnxscript import opset18, opset20, opset21
from roundtrip import PickyEngine, catalog, travel
from torch import Tensor, nn
from unmapped import abandoned, forgotten, lost

import opbridge
from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.catalog.declare.spec import OpSpec
from opbridge.engines.base import Refusal, RefusalKind
from opbridge.errors import TranslationError, UnsupportedOperatorError
from opbridge.ladder.climb import ClimbedAll, climb
from opbridge.ladder.findings import list_findings
from opbridge.ladder.opset_reason import OpsetCause
from opbridge.ladder.plan import plan
from opbridge.torch_graph.decomposed import failing_line


def line_of(function: Any) -> str:
    return f"test_climb.py:{function.__code__.co_firstlineno + 1}"


def test_the_lowest_opset_and_native_operators() -> None:
    trip = travel(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (torch.randn(2, 3),))
    assert trip.climbed.opset == 18
    assert str(trip.climbed.opset_reason) == "the lowest that PyTorch's mappings are written for"
    assert {(o.domain, o.version) for o in trip.proto.opset_import} == {("", 18)}
    assert (trip.rung("aten::linear"), trip.rung("aten::relu")) == ("native", "native")
    assert trip.climbed.breaks == ()


def test_an_opset_of_the_users() -> None:
    trip = travel(nn.Linear(3, 4), (torch.randn(2, 3),), opset=21)
    assert (trip.climbed.opset, str(trip.climbed.opset_reason)) == (21, "requested")
    assert {(o.domain, o.version) for o in trip.proto.opset_import} == {("", 21)}
    trip.check(torch.randn(2, 3))


def test_an_opset_that_is_too_old(tmp_path: Path) -> None:
    for verb in (opbridge.diagnose, lambda *a, **k: opbridge.export(*a, path=tmp_path / "out", **k)):
        with pytest.raises(opbridge.InputError, match="Opset 10 can't be written: 11 is the oldest") as caught:
            verb(nn.ReLU(), (torch.randn(3),), opset=10)
        assert "opset 11 or newer" in caught.value.fix


def test_an_opset_that_the_engine_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(opbridge.OpbridgeError, match="99"):
        opbridge.export(nn.ReLU(), (torch.randn(3),), path=tmp_path / "out", opset=99)
    assert list(tmp_path.iterdir()) == []


def gelu20(self: Any, *, approximate: str = "none") -> Any:
    return opset20.Gelu(self, approximate=approximate)


def test_a_translation_raises_the_opset() -> None:
    trip = travel(nn.GELU(), (torch.randn(4),), specs=[OpSpec("aten::gelu", "translate", gelu20, opset=20)])
    assert (trip.climbed.opset, trip.op_types) == (20, ["Gelu"])
    assert str(trip.climbed.opset_reason) == "aten::gelu needs opset 20"
    trip.check(torch.randn(4))


class OlderVersionsServed(PickyEngine):
    """ONNX Runtime, but with deployed versions that take opset 19 at most."""

    served_opset = 19


def test_a_faster_operator_raises_the_opset_only_where_it_is_served() -> None:
    example = (torch.randn(4),)
    default = travel(nn.GELU(), example)
    assert (default.climbed.opset, default.op_types) == (20, ["Gelu"])
    for trip in (
        travel(nn.GELU(), example, opset="lowest"),
        travel(nn.GELU(), example, engines=[OlderVersionsServed()]),
    ):
        assert trip.climbed.opset == 18
        assert "Erf" in trip.op_types
        trip.check(torch.randn(4))


def test_a_mapping_of_the_users_raises_the_opset_although_it_is_not_served() -> None:
    specs = [OpSpec("aten::gelu", "translate", gelu20, opset=20)]
    trip = travel(nn.GELU(), (torch.randn(4),), specs=specs, engines=[OlderVersionsServed()])
    assert (trip.climbed.opset, trip.op_types) == (20, ["Gelu"])


def test_an_opset_that_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(opbridge.InputError, match="opset='oldest' is not valid") as caught:
        opbridge.export(nn.ReLU(), (torch.randn(3),), path=tmp_path / "out", opset="oldest")
    assert "'lowest'" in caught.value.fix


def test_a_translation_above_the_users_opset_is_missing() -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        travel(nn.GELU(), (torch.randn(4),), specs=[OpSpec("aten::gelu", "translate", gelu20, opset=20)], opset=19)
    assert "its mapping needs opset 20, and 19 is the newest allowed" in caught.value.message


def test_the_engine_raises_the_opset() -> None:
    trip = travel(nn.ReLU(), (torch.randn(4),), engines=[PickyEngine("Relu", below=20)])
    assert (trip.climbed.opset, trip.op_types) == (20, ["Relu"])
    assert str(trip.climbed.opset_reason) == "aten::relu needs opset 20"
    assert trip.rung("aten::relu") == "opset"
    (found,) = trip.climbed.breaks
    assert (found.target, found.link, found.engine, found.mended) == ("aten::relu.default", "kernel", "picky", True)
    trip.check(torch.randn(4))


def test_the_users_opset_is_not_raised() -> None:
    trip = travel(nn.ReLU(), (torch.randn(4),), engines=[PickyEngine("Relu", below=20)], opset=18)
    assert trip.climbed.opset == 18
    assert "Relu" not in trip.op_types, "torch decomposes it instead"
    trip.check(torch.randn(4))


def test_deform_conv_raises_the_opset() -> None:
    ops = pytest.importorskip("torchvision.ops", reason="DeformConv2d is torchvision's")
    model = ops.DeformConv2d(2, 3, 3)
    trip = travel(model, (torch.randn(1, 2, 6, 6), torch.randn(1, 18, 4, 4)))
    assert trip.climbed.opset == 19
    assert "torchvision::deform_conv2d" in str(trip.climbed.opset_reason)
    trip.check(torch.randn(1, 2, 6, 6), torch.randn(1, 18, 4, 4), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_refusal_climbs_to_a_decomposition(approximate: str) -> None:
    trip = travel(nn.GELU(approximate), (torch.randn(4),), engines=[PickyEngine("Gelu")], opset=20)
    assert "Gelu" not in trip.op_types
    trip.check(torch.randn(4))


def by_a_body(self: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return 0.5 * self * (1 + torch.erf(self / 2**0.5))


@pytest.mark.parametrize(("engines", "opset"), [([PickyEngine("Gelu")], 20), (None, 19)], ids=["refused", "too old"])
def test_a_translation_that_can_not_be_is_followed_by_the_body(engines: list[PickyEngine] | None, opset: int) -> None:
    specs = [OpSpec("aten::gelu", "translate", gelu20, opset=20), OpSpec("aten::gelu", "function", by_a_body)]
    trip = travel(nn.GELU(), (torch.randn(4),), specs=specs, engines=engines, opset=opset)
    assert trip.rung("aten::gelu") == "function"
    assert trip.climbed.opset == opset
    trip.check(torch.randn(4))


def test_no_other_mapping_replaces_a_refused_one_of_the_user() -> None:
    mine = OpSpec("aten::relu", "translate", lambda self: opset18.Sin(self), source="my.py:7")
    with pytest.raises(UnsupportedOperatorError, match=r"it is on the list of this test, of the mapping at my\.py:7"):
        travel(nn.ReLU(), (torch.randn(4),), specs=[mine], engines=[PickyEngine("Sin")])


def test_the_body_does_not_replace_a_custom_node_of_the_user() -> None:
    def translation(self: Any) -> Any:
        return opbridge.custom_node("engines::Relu", self)

    specs = [OpSpec("aten::relu", "translate", translation), OpSpec("aten::relu", "function", torch.sin)]
    with pytest.raises(UnsupportedOperatorError, match=r"aten::relu: no kernel for engines::Relu") as caught:
        travel(nn.ReLU(), (torch.randn(4),), specs=specs)
    assert "@opbridge.body_for('engines::Relu')" in caught.value.fix


def test_no_rung_left_names_every_operator_and_its_place() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.relu() + x.sin()

    with pytest.raises(UnsupportedOperatorError) as caught:
        travel(
            Model(),
            (torch.randn(4),),
            engines=[PickyEngine("Relu", "Sin", "Max", "Where", "Clip", "Greater", "Less", "LessOrEqual")],
        )
    message = caught.value.message
    assert "not supported on any rung:\n" in message
    assert "it is on the list of this test" in message
    assert "[picky]" in message
    assert line_of(Model.forward) in message
    assert "opbridge diagnose" in caught.value.fix


def test_a_mapping_of_refused_parts_is_not_called_missing() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.frexp(x).mantissa

    with pytest.raises(UnsupportedOperatorError, match=r"aten::frexp.*: it is on the list of this test \[picky\]"):
        travel(Model(), (torch.randn(4),), engines=[PickyEngine("Floor")])


def test_decompositions_that_lead_back_to_each_other_end() -> None:
    """The catalog's of index is index_select, which torch decomposes to index."""

    class Model(nn.Module):
        def forward(self, x: Tensor, rows: Tensor) -> Tensor:
            return x[rows]

    with pytest.raises(UnsupportedOperatorError, match=r"aten::index\.Tensor: .* is on the list of this test"):
        travel(Model(), (torch.randn(4, 3), torch.tensor([1, 2])), engines=[PickyEngine("Gather", "GatherND")])


def test_the_line_that_torch_can_not_decompose_is_named() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return x.relu()

    program = torch.export.export(type("Model", (nn.Module,), {"forward": forward})(), (torch.randn(4),))
    line = failing_line(program, RuntimeError("no shape\n\nWhile executing %relu : [num_users=1]"))
    assert str(line).endswith(line_of(forward))
    assert failing_line(program, RuntimeError("no shape")) is None


def test_every_missing_operator_is_named_at_once() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = lost(x)
            return forgotten(y) + abandoned(x) + lost(y)

    with pytest.raises(UnsupportedOperatorError) as caught:
        travel(Model(), (torch.rand(3),))
    message = caught.value.message
    start = Model.forward.__code__.co_firstlineno
    assert re.search(
        rf"opbridge_tests::lost: .* \(at .*test_climb.py:{start + 1}, .*test_climb.py:{start + 2}\)", message
    )
    assert re.search(rf"opbridge_tests::forgotten: .*test_climb.py:{start + 2}", message)
    assert "opbridge_tests::abandoned" in message
    assert {"opbridge_tests::lost.default", "opbridge_tests::forgotten.default"} <= set(caught.value.targets)
    assert "@opbridge.decomposition(" in caught.value.fix
    assert str(Path.cwd()) not in message


def raising(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("this mapping was never finished")


def test_torchs_mapping_does_not_replace_a_translation_of_the_user_that_raises() -> None:
    with pytest.raises(TranslationError, match=r"aten::relu.* fails: ValueError: this mapping was never finished"):
        travel(nn.ReLU(), (torch.randn(4),), specs=[OpSpec("aten::relu", "translate", raising, source="my.py:7")])


def test_a_translation_that_raises_with_nothing_else_names_the_operator() -> None:
    specs = [OpSpec("opbridge_tests::lost", "translate", raising, source="my.py:7")]
    with pytest.raises(TranslationError) as caught:
        travel(lost, (torch.randn(4),), specs=specs)
    assert "opbridge_tests::lost" in caught.value.message
    assert "opbridge_tests::lost" in caught.value.message
    assert "this mapping was never finished" in caught.value.message


def test_a_decomposition_that_raises_names_its_place() -> None:
    def model(x: Tensor) -> Tensor:
        return lost(x)

    specs = [OpSpec("opbridge_tests::lost", "decompose", raising, source="my.py:7")]
    with pytest.raises(TranslationError) as caught:
        travel(model, (torch.randn(4),), specs=specs)
    message = caught.value.message
    assert "The decomposition of opbridge_tests::lost.default at my.py:7 fails" in message
    assert "ValueError: this mapping was never finished" in message
    assert line_of(model) in message


@pytest.mark.slow
def test_operators_in_branches_and_loops_are_planned_and_mapped() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.hypot(x, x), lambda x: lost(x), (x,))

    with pytest.raises(UnsupportedOperatorError, match="opbridge_tests::lost"):
        travel(model, (torch.randn(4),))
    trip = travel(model, (torch.randn(4),), specs=[OpSpec("opbridge_tests::lost", "decompose", lambda x: x * 0)])
    assert trip.rung("aten::hypot") == "decompose"
    trip.check(torch.rand(4))


@pytest.mark.slow
def test_a_refusal_in_a_branch_climbs() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: nn.functional.gelu(x), lambda x: x.sin(), (x,))

    trip = travel(model, (torch.randn(4),), engines=[PickyEngine("Gelu")], opset=20)
    trip.check(torch.rand(4))
    trip.check(-torch.rand(4))


@opbridge.operator("test_climb::geluish")
def geluish(x: Tensor) -> Tensor:
    """Return twice the GELU."""
    return 2 * torch.nn.functional.gelu(x)


@pytest.mark.slow
def test_a_refusal_in_a_function_body_climbs() -> None:
    trip = travel(lambda x: geluish(x), (torch.randn(4),), engines=[PickyEngine("Gelu")], opset=20)
    (function,) = trip.proto.functions
    assert "Gelu" not in [node.op_type for node in function.node]
    trip.check(torch.randn(4))


def test_an_in_place_operator_is_planned_as_its_functional_form() -> None:
    def model(x: Tensor) -> Tensor:
        y = x.clone()
        y.hypot_(x)
        return y.relu_()

    trip = travel(model, (torch.randn(4),))
    assert (trip.rung("aten::hypot"), trip.rung("aten::relu")) == ("decompose", "native")
    trip.check(torch.randn(4))


def test_planning_does_not_change_the_program() -> None:
    captured = capture(lambda x: torch.hypot(x, x), (torch.randn(4),))
    before = str(captured.program.graph)
    planned = plan(captured.program, catalog())
    assert str(captured.program.graph) == before
    assert [step.target for step in planned.steps] == ["aten::hypot"]
    assert planned.missing == ()
    assert planned.mapping_of("aten::hypot.default") == "aten::hypot.default@decompose"
    assert planned.mapping_of("aten::relu.default") == "aten::relu.default"


@pytest.mark.slow
def test_the_file_holds_no_path_and_nothing_of_torchs_bookkeeping() -> None:
    def model(x: Tensor) -> Tensor:
        y = torch.hypot(x, x).exp()
        return torch.cond(y.sum() > 0, lambda x: geluish(x), lambda x: x.sin(), (y,))

    trip = travel(model, (torch.randn(4),))
    data = trip.proto.SerializeToString()
    for word in (b"pkg.torch", b"test_climb.py", b"/site-packages", str(Path(__file__).parent).encode(), b"pytorch"):
        assert word not in data, word
    assert trip.proto.producer_name == "opbridge"
    sources = trip.climbed.translated.sources
    (exp,) = [node.name for node in trip.proto.graph.node if node.op_type == "Exp"]
    assert sources[exp].endswith(line_of(model))
    assert trip.climbed.translated.targets[exp] == "aten::exp.default"


@pytest.mark.slow
def test_node_names_are_unique_in_the_whole_model() -> None:
    """Sources, and what an engine refuses, are told by them."""
    trip = travel(lambda x: geluish(x) + 2 * nn.functional.gelu(x) - geluish(x[None])[0], (torch.randn(4),))
    names = [node.name for body in (trip.proto.graph, *trip.proto.functions) for node in body.node]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_the_same_model_gives_the_same_file() -> None:
    def model(x: Tensor) -> Tensor:
        return geluish(torch.hypot(x, x)) + x.cummax(0)[0]

    first, second = (travel(model, (torch.ones(4),)).proto.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_a_newer_node_than_declared_is_told() -> None:
    """The author forgot opset=: the engine refuses the node at 18, and the opset is raised for it."""

    def identity_of_opset_21(self: Any) -> Any:
        return opset21.Relu(self)

    trip = travel(nn.ReLU(), (torch.randn(4),), specs=[OpSpec("aten::relu", "translate", identity_of_opset_21)])
    np.testing.assert_array_equal(trip.run(torch.tensor([-1.0, 0.0, 1.0, 2.0]))[0], [0, 0, 1, 2])


class HalfConvolutions(PickyEngine):
    """An engine that has no ``Conv`` below opset 22 and no ``ConvTranspose`` in float16."""

    def __init__(self) -> None:
        super().__init__("Conv", below=22)

    def supports(self, node: ir.Node, opset_imports: Mapping[str, int]) -> Refusal | None:
        if node.op_type == "ConvTranspose" and node.inputs[0].dtype == ir.DataType.FLOAT16:
            return Refusal(node.name, "ai.onnx::ConvTranspose", "no float16", ("float16",), kind=RefusalKind.DTYPE)
        return super().supports(node, opset_imports) if node.op_type == "Conv" else None


def test_an_operator_is_not_fixed_by_the_change_of_one_whose_name_begins_alike() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        net (float16[1, 2, 8, 8] x, float16[2, 2, 3, 3] w) => (float16[1, 2, 8, 8] z) {
            y = Conv(x, w)
            z = ConvTranspose(y, w)
        }""")
    climbed = climb(ir.from_proto(model), Catalog((), ()), [HalfConvolutions()])
    assert [(step.target, step.rung, step.detail) for step in climbed.steps] == [
        ("ai.onnx::Conv", "opset", "opset 21 becomes 22"),
        ("ai.onnx::ConvTranspose", "decompose", "ai.onnx::ConvTranspose computes in float32 instead of float16"),
    ]
    assert all(found.mended for found in climbed.breaks)


def test_the_operator_that_raises_the_opset_inside_a_body_is_a_finding() -> None:
    @opbridge.operator("test_climb::soft")
    def soft(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x) + 1

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return soft(x)

    trip = travel(Model(), (torch.randn(4),), specs=[OpSpec("aten::gelu", "translate", gelu20, opset=20)])
    reason = trip.climbed.opset_reason
    assert (reason.cause, reason.name, reason.opset, reason.in_body) == (OpsetCause.OPERATOR, "aten::gelu", 20, True)
    assert str(reason) == "aten::gelu needs opset 20, inside a function body"
    found = list_findings(ClimbedAll(trip.climbed, {}), {"onnxruntime": "1"}, trip.captured)
    assert [(item.code, item.target) for item in found if item.code == "opset-raised"] == [
        ("opset-raised", "aten::gelu")
    ]


def test_an_operator_and_the_one_that_it_is_made_of_are_not_decomposed_into_each_other() -> None:
    torch.manual_seed(0)
    model = torch.nn.LayerNorm((3, 4))
    torch.nn.init.normal_(model.weight)
    torch.nn.init.normal_(model.bias)
    trip = travel(model, (torch.randn(2, 3, 4),), engines=[PickyEngine("LayerNormalization")])
    assert "LayerNormalization" not in trip.op_types
    trip.check(torch.randn(2, 3, 4))
