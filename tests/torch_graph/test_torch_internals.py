"""Every internal of torch that opbridge reads, so that a release that moves one fails here first."""

import copy
import importlib
import subprocess
import sys
import threading
from unittest import mock

import pytest
import sympy
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

from opbridge.capture.capture import capture
from opbridge.catalog.declare.catalog import Catalog
from opbridge.ladder.plan import plan
from opbridge.ladder.translate import translate
from opbridge.torch_graph import internals as torch_internals
from opbridge.torch_graph.custom_ops import python_implementations
from opbridge.torch_graph.decomposed import decomposed
from opbridge.torch_graph.example_values import assuming_values, example_fakes
from opbridge.torch_graph.mutations import noting_mutations
from opbridge.torch_graph.recurrent import shapes_of_recurrent_layers, unrolled_lstm
from opbridge.torch_graph.reuse import (
    mappings_of_onnxscript,
    overriding_few_operators,
    quantized_operators,
    registering_kernels,
    reusing_operator_list,
    reusing_registry,
    with_known_results,
    without_second_decomposition,
)
from opbridge.torch_graph.sources import innermost
from opbridge.torch_graph.subgraphs import outside_capture, trace_subgraph, tracer


def test_the_mappings_of_torch_are_found_with_their_opsets():
    mapped = torch_internals.mapped_targets()
    assert (mapped["aten::add.Tensor"], mapped["aten::gelu.default"]) == (18, 18)
    assert mapped["aten::_fft_r2c.default"] == 18
    assert max(mapped.values()) > 18
    assert "aten::mul.Tensor" in torch_internals.mapped_targets(complex_inputs=True)


def test_the_decompositions_leave_out_what_is_kept():
    table = torch_internals.decomposition_table({"aten::gelu.default"})
    assert torch.ops.aten.gelu.default not in table
    assert torch.ops.aten.hardswish.default in table


def test_a_program_is_decomposed_under_the_settings_of_torch_onnx():
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),))
    with torch_internals.decomposing(program):
        assert torch.fx.experimental._config.backed_size_oblivious
    assert not torch.fx.experimental._config.backed_size_oblivious


def test_the_functions_of_custom_operators_are_found():
    @torch.library.custom_op("opbridge_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    function = python_implementations()[torch.ops.opbridge_tests.twice.default]
    torch.testing.assert_close(function(torch.ones(2)), torch.full((2,), 2.0))


def test_the_functions_of_impl_are_found():
    torch.library.define("opbridge_tests::thrice", "(Tensor x) -> Tensor")
    torch.library.impl("opbridge_tests::thrice", "default", lambda x: 2 * x)
    torch.library.impl("opbridge_tests::thrice", "CPU", lambda x: 3 * x)
    function = python_implementations()[torch.ops.opbridge_tests.thrice.default]
    torch.testing.assert_close(function(torch.ones(2)), torch.full((2,), 3.0))


def test_a_constant_that_a_decomposition_creates_is_kept():
    """In torch 2.13 through ``_materialize_and_lift_constants`` and ``_export_to_aten_ir``."""
    constant = torch.tensor([1.0, 2.0])

    def steps(x):
        return x * constant

    class Own(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.hardswish(x) + torch.tensor([3.0, 4.0])

    program = torch.export.export(Own(), (torch.ones(2),))
    before = dict(program.constants)
    with torch_internals.decomposing(program):
        found = decomposed(program, {torch.ops.aten.hardswish.default: steps})
    assert found.module()(torch.ones(2)).tolist() == [4.0, 6.0]
    assert list(program.constants) == list(before)


def test_a_view_of_a_result_that_decomposes_to_another_layout():
    """Attention's result has the layout of its inputs, so that it can be viewed; what it decomposes to can't."""

    class Own(torch.nn.Module):
        def forward(self, x):
            heads = x.transpose(1, 2)
            result = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return result.transpose(1, 2).contiguous().view(*x.shape[:2], -1)

    x = torch.randn(2, 4, 3, 8)
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch_internals.capturing(sizes):
        program = torch.export.export(Own(), (x,), dynamic_shapes=(sizes,))
    assert not program.graph.find_nodes(op="call_function", target=torch.ops.aten.contiguous.default)

    def attention(query, key, value):
        return (query @ key.mT / 8**0.5).softmax(-1) @ value

    with torch_internals.decomposing(program):
        found = decomposed(program, {torch.ops.aten.scaled_dot_product_attention.default: attention})
    other = torch.randn(3, 5, 3, 8)
    torch.testing.assert_close(found.module()(other), Own()(other))


def test_the_line_that_fixes_or_restricts_a_size_is_noted():
    class Loop(torch.nn.Module):
        def forward(self, x):
            if x.shape[1] % 2:
                return x
            return torch.stack([x[i] for i in range(x.shape[0])])

    fixed, guards = [], []
    environment = torch.fx.experimental.symbolic_shapes.ShapeEnv
    before = environment._set_replacement, environment._log_guard
    shapes = {"x": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    with torch_internals.noting_sizes(fixed, guards):
        torch.export.export(Loop(), (torch.randn(3, 4),), dynamic_shapes=shapes)
    assert [(size.dimensions, size.size) for size in fixed] == [(("L['x'].size()[0]",), 3)]
    assert "range(x.shape[0])" in innermost(fixed[0].frames).text
    even = guards[0]
    assert "x.shape[1] % 2" in innermost(even.frames).text
    assert even.text({"L['x'].size()[1]": "n"}) == "n % 2 == 0"
    assert even.fails({"L['x'].size()[1]": 5})
    assert not even.fails({"L['x'].size()[1]": 6})
    assert (environment._set_replacement, environment._log_guard) == before


def test_a_condition_that_holds_at_all_sizes_is_not_assumed():
    class Even(torch.nn.Module):
        def forward(self, x):
            return x + 1 if 2 * ((x.shape[0] - 1) // 2) < x.shape[0] else x

    environment = torch.fx.experimental.symbolic_shapes.ShapeEnv
    own = environment._maybe_evaluate_static
    shapes = {"x": {0: torch.export.Dim.AUTO}}
    guards = []
    with torch_internals.capturing(shapes), torch_internals.noting_sizes([], guards):
        torch.export.export(Even(), (torch.randn(3),), dynamic_shapes=shapes)
    assert not guards
    assert environment._maybe_evaluate_static is own


def test_values_of_the_example_are_assumed_and_noted():
    class Branch(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    assumed = []
    environment = torch.fx.experimental.symbolic_shapes.ShapeEnv
    before = environment.guard_or_defer_runtime_assert
    with assuming_values(assumed, {}):
        program = torch.export.export(Branch(), (torch.ones(2),))
    assert {(value.condition, value.value) for value in assumed} == {("Eq(u0, 1)", "True")}
    assert "x.sum() > 0" in innermost(assumed[0].frames).text
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        program.module()(-torch.ones(2))
    assert environment.guard_or_defer_runtime_assert is before


def test_an_operator_without_a_shape_function_runs_on_the_example_and_keeps_none():
    from capture_failure_models import no_fake

    def model(x):
        return no_fake(x) + 1

    module = torch.nn.Module()
    module.forward = model
    without_fake = {}
    registered = torch._library.simple_registry.singleton.find("findings_test::no_fake").fake_impl
    before = list(registered.kernels)
    with assuming_values([], without_fake):
        program = torch.export.export(module, (torch.ones(2, 3),))
    assert {name: innermost(frames).text for name, frames in without_fake.items()} == {
        "findings_test::no_fake": "return no_fake(x) + 1"
    }
    with example_fakes(without_fake):
        assert len(registered.kernels) == len(before) + 1
        decomposed = program.run_decompositions({})
        (call,) = [node for node in decomposed.graph.nodes if "no_fake" in str(node.target)]
        assert call.meta["val"].shape == (2, 3)
    assert registered.kernels == before


def test_sizes_made_in_the_old_way_begin_at_zero_while_capturing():
    from torch._library.fake_impl import FakeImplCtx

    before = FakeImplCtx.create_unbacked_symint
    with torch_internals.capturing(None):
        assert FakeImplCtx.create_unbacked_symint is FakeImplCtx.new_dynamic_size
    assert FakeImplCtx.create_unbacked_symint is before


@pytest.mark.parametrize("opset", [18, 23])
def test_the_registry_is_read_once_and_is_that_of_torch(opset):
    own = ONNXRegistry().from_torchlib(opset_version=opset)
    with reusing_registry():
        first = ONNXRegistry().from_torchlib(opset_version=opset)
        second = ONNXRegistry.from_torchlib(opset_version=opset)
    assert first.opset_version == own.opset_version == opset
    assert _functions(first) == _functions(own)
    target = torch.ops.aten.relu.default
    assert first.get_decomps(target)[0] is second.get_decomps(target)[0]


def _functions(registry):
    return {
        target: [(meta.onnx_function, meta.signature, meta.is_complex) for meta in metas]
        for target, metas in registry.functions.items()
    }


def test_what_one_export_adds_to_the_registry_no_other_sees():
    with reusing_registry():
        changed = ONNXRegistry.from_torchlib(opset_version=18)
        changed.register_op(torch.ops.aten.relu.default, lambda x: x)
        changed.register_op(torch.ops.aten.cummax.default, lambda x: x)
        fresh = ONNXRegistry.from_torchlib(opset_version=18)
    assert [meta.is_custom for meta in changed.get_decomps(torch.ops.aten.relu.default)] == [True, False]
    assert [meta.is_custom for meta in fresh.get_decomps(torch.ops.aten.relu.default)] == [False]
    assert not fresh.is_registered(torch.ops.aten.cummax.default)


def test_torch_has_its_own_reader_back_after_an_error_and_after_two_threads_at_once():
    own = vars(ONNXRegistry)["from_torchlib"]
    with pytest.raises(ValueError, match="inside"), reusing_registry():
        raise ValueError("inside")
    assert vars(ONNXRegistry)["from_torchlib"] is own

    entered, leave = threading.Event(), threading.Event()

    def other():
        with reusing_registry():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with reusing_registry():
        thread.start()
        entered.wait(30)
    leave.set()
    thread.join(30)
    assert vars(ONNXRegistry)["from_torchlib"] is own


@pytest.mark.skipif(torch.__version__ >= "2.16", reason="torch registers kernels itself there")
def test_kernels_are_registered_as_by_torch():
    from torch._C import DispatchKey
    from torch._ops import OperatorBase

    own, operator = OperatorBase.py_impl, torch.ops.aten.relu.default
    before = dict(operator.py_kernels)
    with registering_kernels():
        assert OperatorBase.py_impl is not own
        with mock.patch.dict(operator.py_kernels), mock.patch.dict(operator._dispatch_cache):
            operator._dispatch_cache[DispatchKey.HPU] = max
            assert operator.py_impl(DispatchKey.HPU)(min) is min
            assert operator.py_kernels == {**before, DispatchKey.HPU: min}
            assert not operator._dispatch_cache
            with pytest.raises(RuntimeError, match="override"):
                operator.py_impl(DispatchKey.HPU)(min)
            with pytest.raises(AssertionError):
                operator.py_impl("HPU")(min)
    assert OperatorBase.py_impl is own


class ManyComposites(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.convolution = torch.nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x):
        y = torch.nn.functional.scaled_dot_product_attention(x, self.linear(x), x) + self.convolution(x.mT).mT
        y = torch.einsum("bij,bkj->bik", y, torch.nn.functional.layer_norm(y, (8,)))
        return y.softmax(-1).std(1), torch.kron(y[0], y[1]), torch.nn.functional.interpolate(y, scale_factor=2)


def operators_of(program):
    nodes = program.graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function" and node not in nodes]


@pytest.mark.quick(every=2)
@pytest.mark.skipif(torch.__version__ >= "2.16", reason="torch overrides operators itself there")
@pytest.mark.parametrize("kept", [(), ("aten::linear.default", "aten::einsum.default")])
def test_composite_operators_that_are_not_overridden_decompose_as_before(kept, monkeypatch):
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    own, overridden = exported_program._override_composite_implicit_decomp, []
    checks = utils._check_valid_to_preserve, decomp_utils._get_decomp_for_cia
    monkeypatch.setattr(
        exported_program,
        "_override_composite_implicit_decomp",
        lambda callables: overridden.append(len(callables)) or own(callables),
    )
    sizes = ({0: torch.export.Dim("batch", min=2)},)
    program = torch.export.export(ManyComposites().eval(), (torch.randn(3, 5, 8),), dynamic_shapes=sizes)
    expected = program.run_decompositions(torch_internals.decomposition_table(set(kept)))
    with overriding_few_operators():
        table = torch_internals.decomposition_table(set(kept))
        assert table == torch_internals.decomposition_table(set(kept)), "the functions are the same objects"
        found = program.run_decompositions(table)
    assert operators_of(found) == operators_of(expected)
    assert overridden[1] < overridden[0] / 3
    assert {name.replace("::", ".") for name in kept} <= set(operators_of(found))
    assert checks == (utils._check_valid_to_preserve, decomp_utils._get_decomp_for_cia)


@pytest.mark.slow
def test_torch_onnx_takes_a_program_as_it_is():
    class Asked(torch.export.ExportedProgram):
        def run_decompositions(self, *args, **kwargs):
            pytest.fail("decomposed again")

    program = torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),)).run_decompositions()
    program.__class__ = Asked
    other = torch.export.export(torch.nn.BatchNorm1d(2).eval(), (torch.randn(1, 2),))
    with without_second_decomposition():
        assert torch.onnx.export(program, (), dynamo=True, verbose=False) is not None
        assert torch.onnx.export(other, (), dynamo=True, verbose=False) is not None, "a program that is not"


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__ >= "2.16", reason="torch converts types itself there")
def test_types_are_converted_as_before_and_known_results_are_not_computed_again(monkeypatch):
    class Mixed(torch.nn.Module):
        def forward(self, x, y):
            a = x + y
            b = torch.where(y > 1, y, 2.5) * x.half()
            return a, b.roll(1, 0), (y.sqrt() + x[0]).cumsum(0), torch.atan2(y, y)

    sizes = ({0: torch.export.Dim("n", min=2)}, {0: torch.export.Dim("n", min=2)})
    program = torch.export.export(Mixed(), (torch.rand(3), torch.arange(3)), dynamic_shapes=sizes)
    computed = []
    own = torch.fx.Interpreter.run_node

    def noting(self, node):
        if type(self).__name__ == "_TypePromotionInterpreter":
            computed.append(str(node.target))
        return own(self, node)

    monkeypatch.setattr(torch.fx.Interpreter, "run_node", noting)

    def nodes():
        model = torch.onnx.export(copy.deepcopy(program), (), dynamo=True, verbose=False, optimize=False).model
        outputs = [(str(value.dtype), str(value.shape)) for node in model.graph for value in node.outputs]
        return [node.op_type for node in model.graph], outputs

    expected = nodes()
    assert "aten.cumsum.default" in computed
    computed.clear()
    with with_known_results():
        assert nodes() == expected
    assert "aten.cumsum.default" not in computed
    assert "Cast" in expected[0]


def test_an_operator_that_gets_its_kernel_later_is_kept():
    library = torch.library.Library("test_torch_internals_kernel", "DEF")
    library.define("late(Tensor x) -> Tensor")
    late = torch.ops.test_torch_internals_kernel.late.default
    from torch._export import utils

    with overriding_few_operators():
        assert not utils._is_preservable_cia_op(late)
        library.impl("late", lambda x: 2 * x, "CompositeImplicitAutograd")
        assert utils._is_preservable_cia_op(late)


def test_the_list_of_operators_is_asked_for_once_and_is_complete(monkeypatch):
    from torch._export import utils

    own, asked = utils._materialize_cpp_cia_ops, []
    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", lambda: asked.append(own()))
    expected = set(torch.export.default_decompositions().items())
    assert len(asked) > 1
    asked.clear()
    with reusing_operator_list(), reusing_operator_list():
        library = torch.library.Library("test_torch_internals_late", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeImplicitAutograd")
        found = dict(torch.export.default_decompositions().items())
    assert len(asked) == 1
    assert torch.ops.test_torch_internals_late.twice.default in found
    assert {key for key, _ in expected} <= found.keys()
    with pytest.raises(ValueError, match="inside"), reusing_operator_list():
        raise ValueError("inside")
    torch.export.default_decompositions().items()
    assert len(asked) > 2, "torch has its own back"


def test_the_mappings_of_onnxscript_are_those_that_it_lists():
    from onnxscript import values
    from torch.onnx._internal._lazy_import import onnxscript_apis

    listed = mappings_of_onnxscript.__wrapped__()
    assert list(listed) == onnxscript_apis.get_torchlib_ops()
    assert isinstance(values.TracedOnnxFunction.function_ir, property)
    assert any(isinstance(item.function, values.TracedOnnxFunction) for item in listed)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch.onnx._internal._lazy_import", "onnxscript_apis"),
        ("torch.onnx._internal.exporter._torchlib._torchlib_registry", "get_torchlib_ops"),
        ("torch._decomp", "decomposition_table"),
        ("torch._export.utils", "_materialize_cpp_cia_ops"),
        ("torch._export.passes.replace_set_grad_with_hop_pass", "replace_set_grad_with_hop_pass"),
        ("torch", "_C._set_grad_enabled"),
        ("torch.fx.experimental._config", "patch"),
        ("torch._library.fake_impl", "FakeImplCtx.create_unbacked_symint"),
        ("torch._subclasses.fake_tensor", "FakeTensorMode"),
        ("torch.fx.experimental.symbolic_shapes", "ShapeEnv.ignore_fresh_unbacked_symbols"),
        ("torch.fx.experimental.symbolic_shapes", "ShapeEnv._maybe_guard_rel"),
        ("torch.fx.experimental.proxy_tensor", "_build_proxy_for_sym_expr"),
        ("torch.fx.experimental.proxy_tensor", "_sym_register"),
        ("torch.utils._sympy.functions", "FloorDiv.eval"),
        ("torch.utils._sympy.functions", "CeilToInt"),
        ("torch.utils._sympy.functions", "FloorToInt"),
        ("torch.utils._sympy.functions", "TruncToInt"),
        ("torch.utils._sympy.functions", "RoundToInt"),
        ("torch.utils._sympy.functions", "IntTrueDiv"),
        ("torch.utils._sympy.functions", "ToFloat"),
        ("torch._numpy", "ndarray"),
        ("torch._numpy._dtypes", "dtype"),
        ("torch.onnx._internal.exporter._registration", "ONNXRegistry.from_torchlib"),
        ("torch.onnx._internal.exporter._building", "OpRecorder.eval"),
        ("onnxscript.rewriter._matcher", "SimplePatternMatcher._match_constant"),
    ],
)
def test_every_internal_is_where_it_was(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        assert hasattr(found, part), f"torch {torch.__version__} has moved {module}.{name}; see torch_internals.py"
        found = getattr(found, part)


CONDITION = """
import torch
from opbridge.capture.capture import capture

class Branch(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + len(x), lambda x: x - 1, (x,))

capture(Branch(), (torch.ones(3),))
"""


@pytest.mark.slow
def test_the_first_capture_of_a_process_may_have_branches():
    done = subprocess.run([sys.executable, "-c", CONDITION], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class ResNetLike(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        y = torch.nn.functional.hardswish(self.norm(self.conv(x)))
        return torch.nn.functional.adaptive_avg_pool2d(y + x.mean(1, keepdim=True), 1).flatten(1)


class Attention(torch.nn.Module):
    def forward(self, x):
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return torch.nn.functional.group_norm(torch.nn.functional.gelu(y), 2)


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


MODELS = {
    "resnet": (ResNetLike(), (2, 3, 8, 8), {"x": {0: torch.export.Dim("batch")}}),
    "attention": (Attention(), (2, 2, 6, 4), {"x": {0: torch.export.Dim("batch")}}),
    "lstm": (Recurrent(), (2, 6, 4), None),
}


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", MODELS)
def test_the_plan_decomposes_as_torch_onnx_does(name):
    """One pass instead of torch.onnx's own, without opbridge's catalog: the operators must be the same."""
    from torch.onnx._internal.exporter import _core

    model, size, shapes = MODELS[name]
    captured = capture(model.eval(), (torch.randn(size),), dynamic_shapes=shapes)
    planned = plan(captured.program, Catalog((), ()))
    theirs = captured.program
    with torch_internals.decomposing(captured.program):
        registry = ONNXRegistry.from_torchlib(opset_version=planned.opset)
        theirs = _core._prepare_exported_program_for_export(theirs, registry=registry)
    prepared = _core._prepare_exported_program_for_export(planned.program, registry=registry)

    def targets(program):
        return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]

    assert targets(prepared) == targets(theirs)


def test_a_program_takes_the_sizes_that_its_guards_allow():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.shape[0] % 2 == 0 else x - 1

    program = torch.export.export(Model(), (torch.randn(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}})
    module = program.module()
    sizes = [2, 3, 4, 5, 8]
    assert [torch_internals.takes(module, (torch.empty(size, 3),)) for size in sizes] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert not torch_internals.takes(module, (torch.empty(4, 7),))


def test_sizes_that_a_shape_function_invents_again_are_forgotten():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.nonzero() * 2

    captured = capture(Model(), (torch.randn(4, 3),))
    for _ in range(2):
        planned = plan(captured.program, Catalog((), ()))
        assert translate(planned).model.graph.outputs


def test_fake_tensors_and_real_ones_beside_them():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    with FakeTensorMode(shape_env=environment):
        fake = torch.empty(2, 3)
        assert torch_internals.is_fake(fake)
        with torch_internals.outside_fake_tensors():
            assert not torch_internals.is_fake(torch.empty(2))
        unknown = environment.create_unbacked_symint()
        assert torch_internals.symbols_of([fake, 3]) == set()
        assert len(torch_internals.symbols_of([unknown])) == 1
        assert torch_internals.example_of(unknown) == 2
        with torch_internals.forgetting_new_sizes([fake]):
            environment.create_unbacked_symint()
        assert torch_internals.example_of(7) == 7


def test_a_write_into_an_input_is_noted():
    x, y = torch.zeros(2, 2), torch.zeros(2)
    with noting_mutations([x, y]) as changed:
        x[0].add_(y)
    assert changed == {0}


def test_no_size_is_excluded_by_a_write_into_a_part():
    """torch._debug_has_internal_overlap would compare it with 1."""

    class Shift(torch.nn.Module):
        def forward(self, x):
            y = torch.zeros_like(x)
            y[:, 1:] = x[:, :-1]
            return y

    shapes = ({1: torch.export.Dim("n", min=2, max=100)},)
    original = torch._debug_has_internal_overlap
    with torch_internals.capturing(shapes):
        program = torch.export.export(Shift(), (torch.ones(2, 9),), dynamic_shapes=shapes)
    assert torch._debug_has_internal_overlap is original
    for size in (2, 3, 9):
        x = torch.randn(2, size)
        assert torch.equal(program.module()(x), Shift()(x))


def test_the_flag_of_an_export_is_set_and_put_back():
    with torch_internals.exporting_to_onnx():
        assert torch.onnx.is_in_onnx_export()
    assert not torch.onnx.is_in_onnx_export()


def test_the_default_opset_and_the_old_exporter_are_found():
    assert torch_internals.default_opset() >= 18
    assert torch_internals.old_exporter("symbolic_helper").parse_args
    assert torch_internals.old_exporter("no_such_module") is None


def test_a_mapped_index_reads_a_tensor():
    table = torch.arange(6).reshape(2, 3)
    with torch_internals.indexing_by_position():
        assert torch.vmap(lambda i: table[i][i])(torch.arange(2)).tolist() == [0, 4]


def test_the_shapes_of_recurrent_layers_do_not_need_their_steps():
    layer = torch.ops.aten.gru.input
    before = dict(layer.py_kernels), torch._decomp.decomposition_table[layer]
    gru = torch.nn.GRU(3, 4, 2, bidirectional=True, batch_first=True).requires_grad_(False)
    mode = torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    with shapes_of_recurrent_layers(), mode:
        x, state = torch.ones(5, 10**9, 3), torch.ones(4, 5, 4)
        results = layer.decompose(x, state, gru._flat_weights, True, 2, 0.0, False, True, True)
    assert [tuple(result.shape) for result in results] == [(5, 10**9, 8), (4, 5, 4)]
    assert (dict(layer.py_kernels), torch._decomp.decomposition_table[layer]) == before


def test_an_lstm_is_unrolled():
    lstm = torch.nn.LSTM(3, 4, proj_size=2).requires_grad_(False)
    x, states = torch.randn(5, 1, 3), (torch.zeros(1, 1, 2), torch.zeros(1, 1, 4))
    results = unrolled_lstm(x, states, lstm._flat_weights, True, 1, 0.0, False, False, False)
    torch.testing.assert_close(results[0], lstm(x)[0])


def test_the_operators_that_quantize_are_mapped():
    operators = quantized_operators()
    assert operators.quantize_per_tensor(torch.tensor([0.3]), 0.1, 5, 0, 255, torch.uint8).tolist() == [8]
    assert "quantized_decomposed::dequantize_per_channel.default" in torch_internals.mapped_targets()


def test_a_function_is_traced_as_a_subgraph_with_what_it_reads_as_inputs():
    traced = []

    class Model(torch.nn.Module):
        def forward(self, x):
            outside = x * 2
            traced.append(trace_subgraph(lambda: [outside + x]))
            return outside

    torch.export.export(Model(), (torch.ones(3),), strict=False)
    (subgraph,) = traced
    assert [node.op for node in subgraph.module.graph.nodes] == [
        "placeholder",
        "placeholder",
        "call_function",
        "output",
    ]
    assert len(subgraph.inputs) == 2
    assert subgraph.mutated == ()


def test_tensors_outside_a_capture_have_data():
    found = []

    class Model(torch.nn.Module):
        def forward(self, x):
            with outside_capture():
                found.append((torch.ones(2).sum().item(), tracer() is not None))
            return x + torch.ones(2).sum()

    program = torch.export.export(Model(), (torch.ones(2),))
    assert found[0] == (2.0, True)
    assert tracer() is None
    assert [node.target for node in program.graph.nodes if node.op == "call_function"].count(
        torch.ops.aten.ones.default
    ) == 1


def test_an_equation_of_sizes_that_sympy_cannot_solve_is_a_condition():
    from torch._dynamo.source import LocalSource
    from torch.fx.experimental.symbolic_shapes import DimConstraints
    from torch.utils._sympy.functions import FloorDiv

    size = sympy.Symbol("size", integer=True, positive=True)

    def constraints():
        found = DimConstraints({size: [LocalSource("x")]}, {size: sympy.Integer(64)}, set(), {})
        found._univariate_inequalities[size] = {sympy.Eq(size / 16, 2 * FloorDiv(size / 4, 8)), size >= 29}
        found._symbols_with_equalities = {size}
        return found

    with pytest.raises(NotImplementedError):
        constraints().solve()
    with torch_internals.capturing(None):
        found = constraints()
        found.solve()
    assert (len(found._dynamic_results), found._static_results) == (2, set())


def test_a_module_may_raise_what_the_model_catches():
    class Layer(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x):
            try:
                return self.layer(x, lengths=None)
            except TypeError:
                return self.layer(x)

    with pytest.raises(AssertionError, match="Unexpected key"):
        torch.export.export(Layers(), (torch.ones(2),))
    with torch_internals.capturing(None):
        program = torch.export.export(Layers(), (torch.ones(2),))
    assert program.module()(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_region_of_vmap_is_ended():
    from torch._functorch import predispatch

    predispatch._vmap_increment_nesting(2, "error")
    torch_internals.end_vmap(1)
    assert torch._C._functorch.peek_interpreter_stack() is None


def test_the_operators_of_quantization_are_defined():
    levels = torch_internals.quantized_operators().quantize_per_tensor(torch.ones(2), 0.5, 1, 0, 255, torch.uint8)
    assert levels.tolist() == [3, 3]
