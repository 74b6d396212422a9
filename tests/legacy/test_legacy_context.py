"""The graph context of the legacy bridge: what symbolic functions find, what becomes of it, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

import onnx_ir as ir  # noqa: E402
from legacy_graphs import output_trees  # noqa: E402

from opbridge import legacy  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.errors import TranslationError  # noqa: E402
from opbridge.ladder.plan import plan  # noqa: E402
from opbridge.ladder.translate import Translated, translate  # noqa: E402
from opbridge.legacy import torch_registry  # noqa: E402
from opbridge.legacy.symbolic_call import emit  # noqa: E402
from opbridge.legacy.target import Target, targeting  # noqa: E402

X = torch.arange(6.0).reshape(2, 3)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def function_with(symbolic: Callable[..., Any], forward: Callable[..., Any] = torch.cos) -> Any:
    """The ``apply`` of a Function of these two; a forward must not be a no-op."""

    class Function(torch.autograd.Function):
        pass

    Function.forward = staticmethod(lambda ctx, *args: forward(*args))
    Function.symbolic = staticmethod(symbolic)
    return Function.apply


def translated(function: Callable[..., Any], *, dynamic: bool = False, opset: int | None = None) -> Translated:
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}} if dynamic else None
    with legacy.enable():
        captured = capture(Model(function), (X,), dynamic_shapes=shapes)
        planned = plan(captured.program, Catalog.load().extended(captured.declared))
        return translate(planned, captured, requested_opset=opset)


def trees(result: Translated) -> list[str]:
    proto = ir.serde.serialize_model(result.model)
    onnx.checker.check_model(proto)
    return [str(tree) for _, tree in output_trees(proto)]


def test_internals_of_torch_that_the_bridge_uses() -> None:
    """A torch release that moves one of them fails here first."""
    from torch import _C
    from torch.onnx._internal.torchscript_exporter import registration, utils
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS
    from torch.onnx._internal.torchscript_exporter._type_utils import JitScalarType
    from torch.onnx._internal.torchscript_exporter.jit_utils import GraphContext

    for name in ("Graph", "TensorType", "NoneType", "ListType", "DeviceObjType", "Value", "Node"):
        assert hasattr(_C, name)
    for name in (
        "_jit_pass_dce_allow_deleting_nodes_with_side_effects",
        "_jit_pass_onnx_constant_fold",
        "_jit_pass_onnx_graph_shape_type_inference",
        "_jit_pass_onnx_peephole",
        "_jit_pass_onnx_scalar_type_analysis",
        "_jit_pass_onnx_set_dynamic_input_shape",
    ):
        assert callable(getattr(_C, name))
    assert callable(_C.Graph._export_onnx)
    assert not hasattr(_C.Node, "__getitem__")
    fields = {"graph", "block", "opset", "original_node", "params_dict", "env", "values_in_env", "new_nodes"}
    assert set(GraphContext.__dataclass_fields__) == fields
    for name in ("export_onnx_opset_version", "in_onnx_export", "training_mode", "operator_export_type"):
        assert hasattr(GLOBALS, name)
    assert hasattr(GLOBALS, "export_training")
    for name in ("register_custom_op_symbolic", "unregister_custom_op_symbolic"):
        assert callable(getattr(utils, name))
    assert callable(utils._trigger_symbolic_function_registration)
    torch_registry.symbolic_function("aten::relu", 18)
    functions = registration.registry.get_function_group("aten::relu")._functions
    assert functions._base
    assert functions._overrides == {}
    assert [int(JitScalarType.from_dtype(dtype)) for dtype in (torch.uint8, torch.int64, torch.bool)] == [0, 4, 11]


def test_several_nodes_several_outputs_and_casts() -> None:
    def symbolic(g, x):
        doubled = g.op("Mul", x, g.op("Constant", value_t=torch.tensor(2)))
        first, second = g.op("custom::Two", doubled, axis_i=1, scales_f=[1, 2.5], outputs=2)
        return g.op("Relu", first), second

    result = translated(function_with(symbolic, lambda x: (x.cos(), x.sin())), dynamic=True)
    two = "custom::Two[{}]{{axis=1, scales=(1.0, 2.5)}}(::Mul[0]{{}}(input 0, ('float32', (), (2.0,))))"
    assert trees(result) == [f"::Relu[0]{{}}({two.format(0)})", two.format(1)]
    assert [(output.dtype, output.shape[1]) for output in result.model.graph.outputs] == [(ir.DataType.FLOAT, 3)] * 2


def test_each_node_has_the_place_and_the_operator_that_it_comes_from() -> None:
    def symbolic(g, x):
        return g.op("custom::Second", g.op("custom::First", x))

    result = translated(function_with(symbolic))
    nodes = {node.op_type: node.name for node in result.model.graph}
    assert set(nodes) == {"First", "Second"}
    for name in nodes.values():
        assert "test_legacy_context.py" in result.sources[name]
        assert result.targets[name].startswith("autograd_function::")


def test_what_only_the_call_used_is_dropped() -> None:
    apply = function_with(lambda g, x, unused: g.op("custom::One", x), lambda x, unused: x.cos())
    result = translated(lambda x: apply(x, (x * 3).exp()))
    assert [node.op_type for node in result.model.graph] == ["One"]


def test_a_symbolic_that_returns_its_input_makes_no_node() -> None:
    apply = function_with(lambda g, x: x)
    assert trees(translated(lambda x: apply(x.exp()) + 1)) == [
        "::Add[0]{}(::Exp[0]{}(input 0), ('float32', (), (1.0,)))"
    ]
    assert [node.op_type for node in translated(apply).model.graph] == ["Identity"]


def test_one_value_returned_twice() -> None:
    def symbolic(g, x):
        made = g.op("custom::One", x)
        return made, made

    assert trees(translated(function_with(symbolic, lambda x: (x.cos(), x.sin())))) == ["custom::One[0]{}(input 0)"] * 2


def test_none_for_a_value_that_nothing_uses() -> None:
    apply = function_with(lambda g, x: (g.op("custom::One", x), None), lambda x: (x.cos(), x.sin()))
    assert trees(translated(lambda x: apply(x)[0])) == ["custom::One[0]{}(input 0)"]
    with pytest.raises(TranslationError, match=r"returns None for value 1, which the model uses"):
        translated(lambda x: apply(x)[1])


def test_constants_of_the_code_are_known() -> None:
    seen = []

    def symbolic(g, x, table):
        seen.append(torch.onnx.symbolic_helper._maybe_get_const(table, "t"))
        return g.op("custom::One", x, table)

    apply = function_with(symbolic, lambda x, table: x + table)
    assert trees(translated(lambda x: apply(x, torch.tensor([1.0, 2.0, 3.0])))) == [
        "custom::One[0]{}(input 0, ('float32', (3,), (1.0, 2.0, 3.0)))"
    ]
    assert torch.equal(seen[0], torch.tensor([1.0, 2.0, 3.0]))


def test_parameters_are_not_known() -> None:
    seen = []

    def symbolic(g, x, weight):
        seen.append(weight.node().kind())
        return g.op("custom::One", x, weight)

    apply = function_with(symbolic, lambda x, weight: x * weight)
    model = torch.nn.Linear(3, 3)
    translated(lambda x: apply(x, X))
    with legacy.enable():

        class Weighted(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, x):
                return apply(x, self.inner.weight[0])

        captured = capture(Weighted(), (X,))
        translate(plan(captured.program, Catalog.load().extended(captured.declared)), captured)
    assert seen == ["onnx::Constant", "prim::Param"]


def test_old_spelling_of_an_attribute() -> None:
    def symbolic(g, x):
        return g.op("custom::One", x, size_i=int(g.op("Constant", value_t=torch.tensor(7)).node()["value"]))

    assert trees(translated(function_with(symbolic))) == ["custom::One[0]{size=7}(input 0)"]


def test_inside_a_branch() -> None:
    torch.onnx.register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("custom::One", g.op("Neg", x)), 9)
    try:
        result = translated(lambda x: torch.cond(x.sum() > 0, lambda x: x.asinh(), lambda x: x - 1, (x,)))
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::asinh", 9)
    inner = [node.op_type for node in ir.traversal.RecursiveGraphIterator(result.model.graph)]
    assert inner.count("One") == inner.count("Neg") == 1
    assert "Symbolic" not in inner
    assert result.model.opset_imports["custom"] == 1
    assert "opbridge.legacy" not in result.model.opset_imports


def test_what_is_written_for_an_older_opset_is_taken_up() -> None:
    seen = []

    def symbolic(g, x):
        seen.append((g.opset, torch.onnx.symbolic_helper.GLOBALS.export_onnx_opset_version))
        return g.op("Squeeze", g.op("Unsqueeze", x, axes_i=[0]), axes_i=[0])

    result = translated(function_with(symbolic), opset=11)
    assert seen == [(11, 11)]
    assert result.model.opset_imports[""] == 18
    axes = "('int64', (1,), (0,))"
    assert trees(result) == [f"::Squeeze[0]{{}}(::Unsqueeze[0]{{}}(input 0, {axes}), {axes})"]


def test_versions_of_custom_domains() -> None:
    with targeting(Target(custom_opsets={"custom": 3})):
        result = translated(function_with(lambda g, x: g.op("custom::One", x)))
    assert result.model.opset_imports["custom"] == 3


def test_an_onnxscript_function_comes_along_and_is_not_registered() -> None:
    from onnxscript import opset18, script, values

    @script(values.Opset("custom", 1), default_opset=opset18)
    def Twice(x):
        return x + x

    result = translated(function_with(lambda g, x: g.onnxscript_op(Twice, x)))
    assert trees(result) == ["custom::Twice[0]{}(input 0)"]
    assert [node.op_type for node in result.model.functions["custom", "Twice", ""]] == ["Add"]
    assert "custom::Twice" not in torch_registry.registered()


SYMBOLICS = {
    "raises": (
        lambda g, x: 1 / 0,
        r"The symbolic function of .*Function at .*test_legacy_context\.py:\d+ fails: ZeroDivisionError: division by",
        "correct the function at that line",
    ),
    "unknown method": (
        lambda g, x: g.frobnicate(x),
        r"test_legacy_context\.py:\d+ fails: AttributeError: .*frobnicate",
        "correct the function at that line",
    ),
    "too many values": (
        lambda g, x: g.op("custom::Two", x, outputs=2),
        r"Function at .*test_legacy_context\.py:\d+ returns 2 values, but the operator returns 1\.",
        "return 1 from it",
    ),
    "no value": (
        lambda g, x: None,
        r"fails: TypeError: it returns NoneType instead of a value of the graph",
        "correct the function at that line",
    ),
    "of another opset": (
        lambda g, x: g.op("Squeeze", x, axes_i=[0]),
        r"adds a node that is not valid at opset 18: Squeeze has no attribute 'axes'\.",
        "or request an opset at which it is valid (opset=12)",
    ),
    "too new": (
        lambda g, x: g.op("Gelu", x),
        r"adds a node that is not valid at opset 18: Gelu is newer\.",
        "or request an opset at which it is valid (opset=20)",
    ),
    "too few inputs": (
        lambda g, x: g.op("Gemm", x),
        r"adds a node that is not valid at opset 18: Gemm takes 2 to 3 inputs, not 1\.",
        "change it to add nodes of opset 18.",
    ),
    "not a value": (
        lambda g, x: 5,
        r"fails: TypeError: it returns int instead of a value of the graph",
        "correct the function at that line",
    ),
    "no kind": (
        lambda g, x: g.op("custom::One", x, alpha=1),
        r"fails: ValueError: Invalid attribute specifier 'alpha'",
        "correct the function at that line",
    ),
    "a list as a value": (
        lambda g, x: g.op("custom::One", g.op("prim::ListConstruct", x, x)),
        r"test_legacy_context\.py:\d+ passes a list to a node 'One', which takes tensors\.",
        "*symbolic_helper._unpack_list(values)",
    ),
}


@pytest.mark.quick("raises", "unknown method", every=3)
@pytest.mark.parametrize("name", SYMBOLICS)
def test_a_symbolic_that_fails_is_named_with_its_place_and_a_fix(name: str) -> None:
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    symbolic, message, fix = SYMBOLICS[name]
    before = dict(vars(GLOBALS))
    with pytest.raises(TranslationError, match=message) as caught:
        translated(function_with(symbolic))
    assert fix in caught.value.fix
    assert vars(GLOBALS) == before


def test_settings_of_torch_are_as_before() -> None:
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    before = dict(vars(GLOBALS))
    seen = []

    def symbolic(g, x):
        seen.append((GLOBALS.in_onnx_export, GLOBALS.training_mode, GLOBALS.export_training))
        return g.op("custom::One", x)

    with targeting(Target(training="TRAINING")):
        translated(function_with(symbolic))
    assert seen == [(True, torch.onnx.TrainingMode.TRAINING, True)]
    assert vars(GLOBALS) == before


def test_outside_of_an_export() -> None:
    with pytest.raises(
        TranslationError, match=r"The symbolic function of mylib::op was called outside an export\."
    ) as e:
        emit(lambda g: None, (), name="mylib::op")
    assert "opbridge.legacy.enable()" in e.value.fix
