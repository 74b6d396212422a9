"""Registered symbolic functions: which is in force, what it is called with, and which operators it reaches."""

from __future__ import annotations

import contextlib
import io
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

import onnx_ir as ir  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from legacy_graphs import output_trees  # noqa: E402
from torch.onnx.symbolic_helper import parse_args  # noqa: E402

import opbridge  # noqa: E402
from opbridge import findings, legacy  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.errors import InputError, TranslationError, UnsupportedOperatorError  # noqa: E402
from opbridge.ladder.plan import Plan, plan  # noqa: E402
from opbridge.ladder.translate import Translated, translate  # noqa: E402
from opbridge.legacy import registrations as own_registrations  # noqa: E402
from opbridge.legacy import torch_registry  # noqa: E402
from opbridge.legacy.old_names import OLD_NAMES  # noqa: E402
from opbridge.legacy.registrations import (  # noqa: E402
    Registration,
    register_custom_op_symbolic,
    registered_specs,
    registrations,
    unregister_custom_op_symbolic,
)

X = torch.arange(6.0).reshape(2, 3)
IMAGE = torch.ones(2, 3, 6, 6)

library = torch.library.Library("legacy_registrations", "DEF")
library.define(
    "everything(Tensor x, Tensor? y, int a, float b, bool c, str d, SymInt[] e, float[] f, Tensor[] g, int? h=None, "
    "*, ScalarType? st=None, Scalar al=1, float[]? fo=None, Device? dev=None) -> Tensor"
)
library.impl("everything", lambda x, *args, **kwargs: x.clone(), "CompositeExplicitAutograd")
everything = torch.ops.legacy_registrations.everything


@contextlib.contextmanager
def registering(*items: tuple[str, Any, int]) -> Iterator[None]:
    for name, symbolic, opset in items:
        torch.onnx.register_custom_op_symbolic(name, symbolic, opset)
    try:
        yield
    finally:
        for name, _, opset in items:
            torch.onnx.unregister_custom_op_symbolic(name, opset)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def planned(function: Callable[..., Any], x: Any = X, *, dynamic: bool = False, **options: Any) -> tuple[Plan, Any]:
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}} if dynamic else None
    with legacy.enable():
        captured = capture(Model(function), (x,), dynamic_shapes=shapes)
        return plan(captured.program, Catalog.load(), **options), captured


def translated(function: Callable[..., Any], x: Any = X, *, opset: int | None = None, **options: Any) -> Translated:
    made, captured = planned(function, x, **options)
    return translate(made, captured, requested_opset=opset)


def tree(result: Translated) -> str:
    return str(output_trees(ir.serde.serialize_model(result.model))[0][1])


def named(name: str) -> Callable[..., Any]:
    return lambda g, x, *rest: g.op(f"custom::{name}", x)


def test_the_newest_that_is_not_above_the_opset_counts() -> None:
    nine, eleven, twenty = named("Nine"), named("Eleven"), named("Twenty")
    found = Registration("aten::asinh", {9: nine, 11: eleven, 20: twenty})
    assert [found.at(opset) for opset in (8, 9, 10, 11, 19, 20, 21)] == [
        None,
        nine,
        nine,
        eleven,
        eleven,
        twenty,
        twenty,
    ]
    with registering(("aten::asinh", nine, 9), ("aten::asinh", eleven, 11), ("aten::asinh", twenty, 20)):
        assert tree(translated(torch.asinh)) == "custom::Eleven[0]{}(input 0)"
        assert tree(translated(torch.asinh, opset=10)) == "custom::Nine[0]{}(input 0)"


def test_a_function_for_a_newer_opset_only_raises_the_plans() -> None:
    with registering(("legacy_registrations::everything", named("New"), 20)):
        made, _ = planned(lambda x: everything(x, None, 1, 1.0, True, "", [1], [1.0], [x]))
        assert (made.opset, str(made.opset_reason)) == (20, "legacy_registrations::everything needs opset 20")


def test_a_function_for_a_newer_opset_than_the_one_asked_for() -> None:
    with (
        registering(("aten::asinh", named("New"), 13)),
        pytest.raises(
            TranslationError, match=r"aten::asinh at .*test_legacy_registrations\.py:\d+ is registered for ops"
        ) as e,
    ):
        translated(torch.asinh, opset=11)
    assert "opset 13 and newer, but opset 11 is requested." in e.value.message
    assert e.value.target == "aten::asinh.default"
    assert e.value.fix == "request opset 13 or newer, or register a function for opset 11."


def test_an_empty_namespace_is_aten() -> None:
    with registering(("::asinh", named("One"), 9)):
        assert [found.name for found in registrations() if "asinh" in found.name] == ["aten::asinh"]


def test_unregistered_ones_are_gone() -> None:
    register_custom_op_symbolic("aten::asinh", named("One"), 9)
    assert "aten::asinh" in {found.name for found in registrations()}
    unregister_custom_op_symbolic("aten::asinh", 9)
    assert "aten::asinh" not in {found.name for found in registrations()}


def test_names_that_can_not_be_registered() -> None:
    with pytest.raises(
        InputError, match=r"register_custom_op_symbolic\('onnx::Add'\): .*onnx domain cannot be modified"
    ) as e:
        register_custom_op_symbolic("onnx::Add", named("One"), 9)
    assert "register_custom_op_symbolic('mylib::my_op', symbolic, 11)" in e.value.fix


def test_torchs_own_functions_are_no_registrations() -> None:
    import torch.onnx.symbolic_opset18  # noqa: F401

    assert not any(found.name.startswith(("aten::", "prim::")) for found in registrations())


def test_torchvisions_own_count_only_where_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    assert not any(found.name.startswith("torchvision::") for found in registrations())
    monkeypatch.setattr(own_registrations, "_is_mapped", lambda name: name != "torchvision::roi_pool")
    assert [found.name for found in registrations()] == ["torchvision::roi_pool"]


def test_what_the_old_exporter_noted_down_is_no_registration() -> None:
    from legacy_cases.subgraphs import ScriptFunction

    torch.onnx.export(Model(ScriptFunction.apply), (X,), io.BytesIO(), dynamo=False)
    assert "custom.script::Selu" in torch_registry.registered()
    assert not any(found.name.startswith("custom.script::") for found in registrations())


def test_each_overload_has_a_mapping_of_the_users() -> None:
    with registering(("aten::softmax", named("Softmax"), 9)):
        specs = [spec for spec in registered_specs() if spec.target.startswith("aten::softmax")]
    assert [spec.target for spec in specs] == ["aten::softmax.int"]
    assert specs[0].rung == "translate"
    assert specs[0].source.rpartition("/")[2].startswith("test_legacy_registrations.py:")


KEPT = {
    "aten::linear": (lambda x: F.linear(x, torch.ones(4, 3)), X),
    "aten::gelu": (F.gelu, X),
    "aten::layer_norm": (lambda x: F.layer_norm(x, (3,)), X),
    "aten::softmax": (lambda x: x.softmax(-1), X),
    "aten::relu": (lambda x: F.relu(x * 2, inplace=True), X),
    "aten::batch_norm": (lambda x: F.batch_norm(x, torch.ones(3), torch.ones(3)), IMAGE),
    "aten::group_norm": (lambda x: F.group_norm(x, 3), IMAGE),
    "aten::conv2d": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)), IMAGE),
    "aten::upsample_bilinear2d": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), IMAGE),
    "aten::grid_sampler": (lambda x: F.grid_sample(x, torch.zeros(2, 2, 2, 2)), IMAGE),
    "aten::reshape": (lambda x: x.reshape(3, -1), X),
    "aten::flatten": (lambda x: x.flatten(1), IMAGE),
    "aten::to": (lambda x: x.to(torch.float64), X),
    "aten::instance_norm": (F.instance_norm, IMAGE),
    "aten::matmul": (lambda x: x @ x.T, X),
    "aten::add": (lambda x: x + 1, X),
    "aten::scaled_dot_product_attention": (lambda x: F.scaled_dot_product_attention(x, x, x), IMAGE),
    "aten::_convolution": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3)), IMAGE),
    "aten::_convolution_mode": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), padding="same"), IMAGE),
}


def test_operators_that_torch_maps_or_decomposes_are_kept_for_the_user() -> None:
    """One model for all: an export costs the same for one operator as for many."""
    with registering(*((name, named(name.partition("::")[2]), 9) for name in KEPT if name != "aten::conv2d")):
        result = translated(lambda x: tuple(f(IMAGE if x_ is IMAGE else x) for f, x_ in KEPT.values()))
    wanted = {name.partition("::")[2] for name in KEPT} - {"conv2d"}
    assert not any("opbridge_kept" in target for target in result.targets.values())
    assert {node.op_type for node in result.model.graph if node.domain == "custom"} == wanted


def test_a_composite_operator_is_one_step_of_the_plan_and_the_program_stays_as_it_was() -> None:
    with registering(("aten::reshape", named("Reshape"), 9)):
        made, captured = planned(lambda x: x.reshape(3, -1) + 1)
    assert [(step.target, step.rung) for step in made.steps] == [
        ("aten::reshape", "translate"),
        ("aten::add.Tensor", "native"),
    ]
    called = [str(node.target) for node in captured.program.graph.nodes if node.op == "call_function"]
    assert "aten.reshape.default" in called


def test_the_operators_own_name_comes_before_the_tracers() -> None:
    items = [("aten::conv2d", named("Own"), 9), ("aten::_convolution", named("Traced"), 9)]
    with registering(*items):
        assert tree(translated(KEPT["aten::conv2d"][0], IMAGE)) == "custom::Own[0]{}(input 0)"


def recording(seen: list[Any]) -> Callable[..., Any]:
    def described(value: Any) -> Any:
        node = value.node()
        inner = [described(item) for item in node.inputs()] if node.kind() == "prim::ListConstruct" else []
        contents = None
        if node.kind() == "onnx::Constant":
            contents = getattr(node, node.kindOf("value"))("value")
            contents = (contents.dtype, contents.tolist()) if isinstance(contents, torch.Tensor) else contents
        return node.kind(), value.type().kind(), contents, inner

    def symbolic(g: Any, x: Any, *rest: Any) -> Any:
        seen.append([described(value) for value in rest])
        return g.op("custom::One", x)

    return symbolic


CALLS = {
    "everything given": lambda x: everything(
        x, x + 1, 3, 2.5, True, "hey", [1, 2], [1.5, 2.0], [x, x * 2], 7, st=torch.float16, al=2.5, fo=[1.0]
    ),
    "defaults": lambda x: everything(x, None, 3, 2.0, False, "", [4, 5], [0.5], [x]),
    "empty lists": lambda x: everything(x, None, 3, 2.0, False, "a b", [4], [0.5], [], st=torch.bool, al=3),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_come_as_from_the_old_exporter(name: str) -> None:
    seen: list[Any] = []
    with registering(("legacy_registrations::everything", recording(seen), 9)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Model(CALLS[name]), (X,), io.BytesIO(), dynamo=False, opset_version=18)
        translated(CALLS[name])
    old, new = seen
    assert len(old) == 13
    kinds = {"onnx::Add", "onnx::Mul", "prim::Param"}  # What makes a tensor is another node there than here.
    assert [tensors_alike(item, kinds) for item in new] == [tensors_alike(item, kinds) for item in old]


def tensors_alike(item: Any, kinds: set[str]) -> Any:
    kind, type_, contents, inner = item
    return "tensor" if kind in kinds else kind, type_, contents, [tensors_alike(part, kinds) for part in inner]


CONVOLUTIONS = {
    "conv1d": (lambda x: F.conv1d(x[:, :, 0], torch.ones(4, 3, 3), stride=2), IMAGE),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), torch.ones(4), (2, 1), (1, 0), 2), IMAGE),
    "conv3d": (lambda x: F.conv3d(x[:, :, None], torch.ones(4, 3, 1, 3, 3)), IMAGE),
    "transposed": (lambda x: F.conv_transpose2d(x, torch.ones(3, 4, 3, 3), None, 2, 1, 1), IMAGE),
    "same": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), padding="same"), IMAGE),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_come_as_the_tracer_records_them(name: str) -> None:
    function, x = CONVOLUTIONS[name]
    seen: list[Any] = []
    items = [(old, recording(seen), 9) for old in ("aten::_convolution", "aten::_convolution_mode")]
    with registering(*items), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Model(function), (x,), io.BytesIO(), dynamo=False, opset_version=18)
        translated(function, x)
    old, new = seen
    assert len(new) == len(old)
    assert new[2:] == old[2:]  # Before that come weight and bias, which are constants for the tracer.


def test_a_dynamic_size_has_its_old_name() -> None:
    @parse_args("v", "i")
    def size(g, x, axis):
        return g.op("custom::Size", x, axis_i=axis)

    with registering(("aten::size", size, 9)):
        result = translated(lambda x: x.new_ones(1) * x.size(0), dynamic=True)
    assert "custom::Size[0]{axis=0}(input 0)" in tree(result)


def test_every_old_name_has_its_operator_and_a_reason() -> None:
    from opbridge.torch_graph.targets import overload_of

    for old in (item for items in OLD_NAMES.values() for item in items):
        assert isinstance(overload_of(old.captured), torch._ops.OpOverload)
        assert old.reason


def test_a_registration_that_nothing_can_call_is_found() -> None:
    program = torch.export.export(Model(torch.cos), (X,))
    with registering(("prim::ConstantChunk", named("Chunk"), 11)):
        assert [found.code for found in findings.in_program(program)] == []
        with legacy.enable():
            (found,) = findings.in_program(program)
    assert (found.code, found.target) == ("registration-without-operator", "prim::ConstantChunk")
    assert "prim::ConstantChunk, which is not an operator of torch, so no captured graph has it" in found.message
    assert "test_legacy_registrations.py:" in found.message
    assert found.severity == "warning"


def test_an_export_names_the_registrations_that_it_can_not_use() -> None:
    warned = pytest.warns(UserWarning, match=r"for aten::__ior__, which modifies its input, so no captured graph")
    with registering(("aten::__ior__", named("Or"), 14)), legacy.enable(), warned:
        torch.onnx.export(Model(torch.cos), (X,))


def test_a_function_assigned_to_a_module_of_symbolic_functions_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.onnx.symbolic_opset11 as opset11

    def upsample_nearest2d(g: Any, x: Any, *args: Any) -> Any:
        return g.op("assigned::Upsample", x)

    monkeypatch.setattr(opset11, "upsample_nearest2d", upsample_nearest2d, raising=False)
    with legacy.enable():
        program = torch.onnx.export(Model(lambda x: F.interpolate(x, scale_factor=2.0)), (IMAGE,), opset_version=11)
        assert [item.name for item in legacy.bridged()] == ["aten::upsample_nearest2d"]
    assert [node.op_type for node in program.model.graph] == ["Upsample"]


def test_a_module_of_symbolic_functions_can_be_added() -> None:
    own = types.ModuleType("own_opset11")
    own.cos = named("OwnCos")  # type: ignore[attr-defined]
    with legacy.enable():
        from torch.onnx.symbolic_registry import _symbolic_versions, unregister_op

        earlier = _symbolic_versions[11]
        _symbolic_versions[11] = own
        try:
            program = torch.onnx.export(Model(torch.cos), (X,), opset_version=11)
        finally:
            _symbolic_versions[11] = earlier
            unregister_op("cos", "", 11)
    assert [node.op_type for node in program.model.graph] == ["OwnCos"]


def test_a_node_on_which_torchs_inference_fails_is_kept_or_named() -> None:
    def zeros(g: Any, x: Any) -> Any:
        return g.op("Reshape", x, g.op("Constant", value_t=torch.tensor([0, 3, 1])))

    def without_shape(g: Any, x: Any) -> Any:
        return g.op("Reshape", x, shape_i=[6])

    with registering(("aten::cos", zeros, 9)), legacy.enable():
        program = torch.onnx.export(Model(torch.cos), (X,))
    assert [node.op_type for node in program.model.graph] == ["Constant", "Reshape"]
    invalid = pytest.raises(TranslationError, match=r"not valid at opset \d+: Reshape has no attribute 'shape'")
    with registering(("aten::cos", without_shape, 9)), legacy.enable(), invalid:
        torch.onnx.export(Model(torch.cos), (X,))


@pytest.mark.slow
def test_a_node_that_no_engine_has_is_not_replaced_by_torchs_mapping(tmp_path: Path) -> None:
    def model(x):
        return F.layer_norm(x, (3,))

    def symbolic(g, x, shape, weight, bias, eps, cudnn):
        return g.op("engine::LayerNorm", x)

    def body(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (3,))

    with registering(("aten::layer_norm", symbolic, 9)), legacy.enable():
        with pytest.raises(UnsupportedOperatorError, match=r"aten::layer_norm: no kernel for engine::LayerNorm") as e:
            opbridge.export(model, X, path=tmp_path / "b")
        assert "@opbridge.body_for('engine::LayerNorm')" in e.value.fix
        assert "--engine none" in e.value.fix
        ops = [opbridge.body_for("engine::LayerNorm")(body)]
        bundle = opbridge.export(model, X, path=tmp_path / "b", ops=ops)
        assert bundle.verified
        assert [item.name for item in legacy.bridged()] == ["aten::layer_norm"]
        plain = opbridge.export(model, X, path=tmp_path / "none", engines=())
    for made in (bundle, plain):
        nodes = onnx.load(made.path / "model.onnx").graph.node
        assert [(node.domain, node.op_type) for node in nodes] == [("engine", "LayerNorm")]


def test_errors_name_the_operator_and_its_function() -> None:
    with (
        registering(("aten::asinh", lambda g, x: g.op("custom::Two", x, outputs=2), 9)),
        pytest.raises(
            TranslationError,
            match=r"The symbolic function of aten::asinh at .*test_legacy_registrations\.py:\d+ returns 2 values, but",
        ),
    ):
        translated(torch.asinh)
