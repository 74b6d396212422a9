"""Element types other than float32: what torch.onnx or an engine does wrong in them, mended by class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from one_node import DOUBLE, FLOAT16, make_model, save, to_ir  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402

from opbridge import engines  # noqa: E402
from opbridge.capture.capture import capture  # noqa: E402
from opbridge.catalog.declare.catalog import Catalog  # noqa: E402
from opbridge.catalog.ops.elementwise import atan, erf, sinh  # noqa: E402
from opbridge.catalog.ops.nn.convolution import convolution  # noqa: E402
from opbridge.engines.passes.vector_scales import VectorScalesPass  # noqa: E402
from opbridge.engines.passes.wide_scatter import WideScatterPass  # noqa: E402
from opbridge.ladder.plan import plan  # noqa: E402
from opbridge.proof.conformance.calls import Call  # noqa: E402
from opbridge.proof.conformance.check import Checker  # noqa: E402
from opbridge.proof.conformance.definitions import differs_by_definition  # noqa: E402
from opbridge.proof.conformance.results import Way  # noqa: E402
from opbridge.torch_graph.promoted_results import shield_results  # noqa: E402

pytestmark = pytest.mark.newest

functional = torch.nn.functional
DOUBLES = torch.float64
HALVES = (torch.float16, torch.bfloat16)
INF, NAN = math.inf, math.nan


def _numbers(*shape: int, dtype: torch.dtype = DOUBLES) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=DOUBLES).to(dtype)


def _proved(calls: Sequence[Call]) -> None:
    """Export the calls as one model and verify it, as `opbridge conformance` does."""
    found = Checker(Way()).check("", calls)
    assert (found.status, found.error) == ("pass", "")


def _double_calls() -> list[Call]:
    x, y, row = _numbers(4, 5), _numbers(5, 4).T.contiguous(), _numbers(5)
    square, batch = _numbers(5, 5), _numbers(2, 3, 3)
    elementwise = [
        lambda x: functional.leaky_relu(x, 0.1),
        lambda x: functional.hardtanh(x, -0.1, 0.3),
        functional.hardsigmoid,
        functional.hardswish,
        lambda x: functional.softplus(x, 0.3, 0.1),
        functional.gelu,
        torch.erf,
        torch.sinc,
        torch.deg2rad,
        torch.tan,
        torch.sinh,
        torch.cosh,
        torch.atan,
        torch.asinh,
        torch.nonzero,
        lambda x: torch.log2(x.abs()),
        lambda x: torch.log10(x.abs()),
        lambda x: torch.acosh(x.abs() + 1),
        lambda x: torch.asin(x / 10),
        lambda x: torch.acos(x / 10),
        lambda x: torch.atanh(x / 10),
        lambda x: torch.fill(x, 0.1),
        lambda x: torch.full_like(x, 0.1),
    ]
    return [
        *(Call(function, (x,), {}) for function in elementwise),
        Call(torch.full, ((3, 4), 0.1), {"dtype": DOUBLES}),
        Call(torch.arange, (0.1, 2.3, 0.1), {"dtype": DOUBLES}),
        Call(torch.atan2, (x, y), {}),
        Call(torch.floor_divide, (x, y), {}),
        Call(torch.add, (x, y), {"alpha": 0.1}),
        Call(torch.addcmul, (x, y, y), {"value": 0.1}),
        Call(torch.addcdiv, (x, y, y), {"value": 0.1}),
        Call(torch.addmv, (row, square, row), {"beta": 0.1, "alpha": 0.3}),
        Call(torch.addmm, (square, square, square), {"beta": 0.1, "alpha": 0.3}),
        Call(torch.baddbmm, (batch, batch, batch), {"beta": 0.1, "alpha": 0.3}),
        Call(torch.addbmm, (batch[0], batch, batch), {"beta": 0, "alpha": 0.3}),
        Call(functional.conv2d, (_numbers(1, 2, 5, 6), _numbers(3, 2, 3, 3)), {"stride": 2, "padding": 1}),
        Call(torch.fft.irfftn, (_numbers(3, 7),), {"s": (3, 10)}),
    ]


@pytest.mark.sweep
@pytest.mark.newest
def test_float64_keeps_all_its_digits() -> None:
    _proved(_double_calls())


@pytest.mark.quick("torch.bfloat16", every=3)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_results_of_16_bits_have_their_type(dtype: torch.dtype) -> None:
    x, at = _numbers(4, 5, dtype=dtype), torch.tensor([[0, 1, 0, 2, 0]])
    functions = [torch.abs, torch.amax, torch.sum, lambda x: torch.cumsum(x, 0), lambda x: torch.cumprod(x, 1)]
    scattered = [
        Call(torch.scatter_add, (x, 0, at, x[:1]), {}),
        Call(torch.put, (x, torch.tensor([1, 1]), x[0, :2], True), {}),
        Call(torch.scatter_reduce, (x, 0, at, x[:1], "amax"), {}),
    ]
    _proved([*(Call(function, (x,), {}) for function in functions), *scattered])


@pytest.mark.slow
def test_integers_and_booleans_where_the_standard_has_floating_point_alone() -> None:
    whole = torch.tensor([[3, -4, 0], [2, 2, 7]])
    rounded = [torch.ceil, torch.floor, torch.trunc, torch.round, torch.angle, lambda x: torch.angle(x > 0)]
    kernel = torch.tensor([[[1, -2]]], dtype=torch.int32)
    _proved(
        [
            *(Call(function, (whole,), {}) for function in rounded),
            Call(functional.conv1d, (whole.int()[None, :1], kernel), {"padding": 1}),
            Call(torch.einsum, ("ij->i", whole.int()), {}),
            Call(torch.einsum, ("ij->ji", whole.int()), {}),
        ]
    )


def test_a_tiny_number_is_not_taken_for_zero() -> None:
    _proved(
        [Call(lambda x: 1 / (x + 1e-12), (torch.zeros(3),), {}), Call(lambda x: x * 1.000005, (torch.ones(3),), {})]
    )


SPREAD = torch.cat(
    [_numbers(500) * scale for scale in (1e-300, 1e-9, 1e-3, 0.3, 1, 3, 30, 300, 1e18, 1e300)]
    + [torch.tensor([0.0, -0.0, 1, -1, INF, -INF, NAN, 0.66, 5e-324, 709, 710, 711, 1 - 2**-53], dtype=DOUBLES)]
)


@pytest.mark.parametrize(
    "function",
    [
        *(erf.erf, atan.atan, atan.asin, atan.acos),
        *(sinh.sinh, sinh.cosh, sinh.asinh, sinh.acosh, sinh.atanh, sinh.tan),
    ],
    ids=lambda function: function.__name__,
)
def test_formulas_hold_over_the_whole_domain(function: Any) -> None:
    expected = getattr(torch, function.__name__)(SPREAD)
    found = function(SPREAD)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-15, atol=1e-323)
    assert torch.equal(torch.signbit(found)[~expected.isnan()], torch.signbit(expected)[~expected.isnan()])


def test_the_angle_of_every_pair_of_special_values() -> None:
    odd = torch.tensor([0.0, -0.0, 1, -1, INF, -INF, NAN, 1e-200, 3e200], dtype=DOUBLES)
    height, width = odd.repeat_interleave(len(odd)), odd.repeat(len(odd))
    found, expected = atan.atan2(height, width), torch.atan2(height, width)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-15, atol=0)
    assert torch.equal(torch.signbit(found)[~expected.isnan()], torch.signbit(expected)[~expected.isnan()])


def test_other_types_are_left_to_other_mappings() -> None:
    assert erf.erf(torch.zeros(2)) is NotImplemented


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_are_those_of_pytorch(dims: int, transposed: bool) -> None:
    for groups, stride, padding, dilation in itertools.product((1, 2), (1, 3), (0, 2), (1, 2)):
        image = _numbers(2, 4, *(7, 8, 6)[:dims])
        channels = (4, 6 // groups) if transposed else (6, 4 // groups)
        weight = _numbers(*channels, *(3, 2, 3)[:dims])
        extra = min(1, max(stride, dilation) - 1) if transposed else 0
        given = ([stride] * dims, [padding] * dims, [dilation] * dims, transposed, [extra] * dims, groups)
        expected = torch.ops.aten.convolution(image, weight, _numbers(6), *given)
        np.testing.assert_allclose(convolution(image, weight, _numbers(6), *given), expected, rtol=0, atol=1e-12)


def _program(module: torch.nn.Module, *inputs: torch.Tensor) -> Any:
    return capture(module, inputs).program


class _Two(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(x), x, functional.leaky_relu(y)


def test_only_computed_results_of_16_bits_are_shielded() -> None:
    program = _program(_Two(), torch.ones(2, dtype=torch.float16), torch.ones(2)).run_decompositions({})
    shield_results(program)
    targets = [str(node.target) for node in program.graph.output_node().args[0]]
    assert targets == ["aten.alias.default", "x", "aten.leaky_relu.default"]
    names = [spec.arg.name for spec in program.graph_signature.output_specs]
    assert names == [node.name for node in program.graph.output_node().args[0]]


@pytest.mark.parametrize(("dtype", "rung"), [(torch.float32, "native"), (DOUBLES, "decompose")])
def test_the_step_says_which_mapping_a_type_takes(dtype: torch.dtype, rung: str) -> None:
    planned = plan(_program(torch.nn.LeakyReLU(0.1), torch.ones(2, dtype=dtype)), Catalog.load())
    assert [(step.target, step.rung) for step in planned.steps] == [("aten::leaky_relu", rung)]
    assert ("aten::leaky_relu.default" in planned.chosen) == (rung == "decompose")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_types_that_a_decomposition_leaves_out_take_that_of_torch(dtype: torch.dtype) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sinc(x)

    planned = plan(_program(Model(), torch.ones(4, dtype=dtype)), Catalog.load())
    assert planned.missing == ()
    assert ("aten::sinc.default" in planned.chosen) == (dtype == torch.float64)


@pytest.mark.parametrize("columns", [4, "n"])
def test_a_factor_of_a_product_keeps_its_digits(columns: Any, tmp_path: Any) -> None:
    factor = numpy_helper.from_array(np.array(0.1), "factor")
    nodes = [helper.make_node("MatMul", ["a", "b"], ["ab"]), helper.make_node("Mul", ["factor", "ab"], ["y"])]
    given = {"a": (DOUBLE, [3, 3]), "b": (DOUBLE, [3, columns])}
    model = to_ir(make_model(nodes, given, {"y": (DOUBLE, [3, columns])}, initializers=[factor]))
    model.graph.node(0).outputs[0].shape = ir.Shape([3, columns])
    assert VectorScalesPass()(model).modified
    left, right = np.random.default_rng(0).normal(size=(3, 3)), np.random.default_rng(1).normal(size=(3, 4))
    (found,) = engines.get("onnxruntime").load(save(model, tmp_path / "scaled.onnx"))(left, right)
    np.testing.assert_allclose(found, left @ right * 0.1, rtol=1e-14)
    assert not VectorScalesPass()(model).modified


def test_scatters_of_16_bits_add_up_in_float32() -> None:
    given = {"x": (FLOAT16, [3]), "i": ("INT64", [4]), "u": (FLOAT16, [4])}
    adding = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add", name="adding")
    placing = helper.make_node("ScatterElements", ["y", "i", "u"], ["z"], name="placing")
    model = to_ir(make_model([adding, placing], given, {"z": (FLOAT16, [3])}))
    assert WideScatterPass()(model).modified
    assert [node.op_type for node in model.graph] == ["Cast", "Cast", "ScatterElements", "Cast", "ScatterElements"]
    assert not WideScatterPass()(model).modified


def test_an_index_of_one_of_several_equal_numbers_is_right_along_its_own_axis() -> None:
    call = Call(torch.topk, (torch.tensor([[1, 1, 2], [3, 3, 3]]), 2), {})
    values, _ = call()
    assert differs_by_definition("topk", call, [values.numpy(), np.array([[2, 1], [2, 0]])]) is None
    wrong = differs_by_definition("topk", call, [values.numpy(), np.array([[0, 1], [2, 0]])])
    assert wrong == "what defines the result (quantity 1 of selected): the elements differ"
