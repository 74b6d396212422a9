"""Complex tensors as pairs of real ones: the rules against PyTorch, and through an export."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import opbridge  # noqa: E402
from opbridge.catalog.complex.rules import complex_rule, is_complex_call, rules, with_complex_rules  # noqa: E402
from opbridge.catalog.complex.simplify import simplify  # noqa: E402
from opbridge.proof.conformance import database  # noqa: E402
from opbridge.proof.conformance.calls import Batch  # noqa: E402
from opbridge.torch_graph.targets import calls_in  # noqa: E402

pytestmark = pytest.mark.newest

aten = torch.ops.aten

ELEMENTARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "silu", "sinc"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("reciprocal", "abs", "angle", "sgn", "square"),
)


def _plane(*sizes: float) -> torch.Tensor:
    """Numbers in every direction, with parts of these sizes; none on a branch cut."""
    parts = [sign * size for size in sizes for sign in (1, -1)]
    return torch.tensor([complex(a, b) for a, b in itertools.product(parts, parts)], dtype=torch.complex64)


def _rule(key: str) -> Any:
    return rules()[key].function


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_keep_their_digits(name: str) -> None:
    z = _plane(1e-3, 0.02, 0.3, 0.71, 1.1, 2.5, 7.9)
    found, expected = _rule(f"aten::{name}.default")(z), getattr(aten, name)(z.to(torch.complex128))
    assert found.dtype == getattr(aten, name)(z).dtype
    np.testing.assert_allclose(found.numpy(), expected.numpy(), 3e-6, 1e-12)


@pytest.mark.parametrize("name", ["sqrt", "abs", "sgn", "log", "reciprocal", "asinh", "tanh"])
def test_no_overflow_on_the_way(name: str) -> None:
    z = _plane(1e-30, 1e30)
    expected = getattr(aten, name)(z.to(torch.complex128)).to(getattr(aten, name)(z).dtype)
    np.testing.assert_allclose(_rule(f"aten::{name}.default")(z).numpy(), expected.numpy(), 3e-6, 0)


@pytest.mark.parametrize("name", ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "pow.Tensor_Tensor"])
@pytest.mark.parametrize("other", [_plane(0.5, 3.0), torch.tensor(2.0), torch.tensor(3), torch.tensor(1 - 2j)])
def test_arithmetic(name: str, other: torch.Tensor) -> None:
    z = _plane(0.7, 1.3)
    operator = getattr(getattr(aten, name.partition(".")[0]), name.partition(".")[2])
    for first, second in ((z, other), (other, z)):
        found, expected = _rule(f"aten::{name}")(first, second), operator(first, second)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-5, 1e-6)


def test_products_of_many_numbers() -> None:
    z = torch.polar(torch.linspace(0.9, 1.1, 300), torch.linspace(-3, 3, 300)).reshape(2, 150)
    wide = z.to(torch.complex128)
    np.testing.assert_allclose(_rule("aten::prod.default")(z).numpy(), wide.prod().numpy(), 1e-5)
    np.testing.assert_allclose(_rule("aten::prod.dim_int")(z, 1, True).numpy(), wide.prod(1, True).numpy(), 1e-5)
    np.testing.assert_allclose(_rule("aten::cumprod.default")(z, 1).numpy(), wide.cumprod(1).numpy(), 1e-5)


def test_powers_that_are_exact() -> None:
    z = torch.tensor([0j, 2 + 1j])
    assert _rule("aten::pow.Tensor_Scalar")(z, 0).tolist() == [1, 1]
    assert _rule("aten::pow.Tensor_Scalar")(z, 3).tolist() == [0, (2 + 1j) ** 3]
    assert _rule("aten::pow.Tensor_Tensor")(z, torch.tensor(0j)).tolist() == [1, 1]
    assert _rule("aten::pow.Scalar")(0, torch.tensor([0j, 2 + 0j])).tolist() == [1, 0]
    of_zero = _rule("aten::pow.Scalar")(0, torch.tensor([2 + 1j, 1j, -1 + 0j]))
    assert of_zero[0] == 0
    assert of_zero[1].isnan()
    assert of_zero[2].real == float("inf")


def test_a_call_is_complex_by_its_tensors_numbers_or_types() -> None:
    real = torch.zeros(2)
    assert is_complex_call((real.to(torch.complex64),), {})
    assert is_complex_call(([real, real + 0j],), {})
    assert is_complex_call((real, 2j), {})
    assert is_complex_call((), {"dtype": torch.complex128})
    assert not is_complex_call((real, 2.0, None), {"dtype": torch.float64})


def test_every_target_is_one_of_an_operator_that_computes_new_tensors() -> None:
    assert len(rules()) > 150
    assert [key for key, rule in rules().items() if rule.overload._schema.is_mutable] == []


def test_a_mapping_of_the_users_own_goes_first() -> None:
    def own(self: torch.Tensor) -> torch.Tensor:
        return self

    table = {aten.sin.default: own}
    assert with_complex_rules(table, (), {"aten::sin.default"})[aten.sin.default] is own
    chosen = with_complex_rules(table, (), set())[aten.sin.default]
    real = torch.ones(1)
    assert chosen(real) is real
    assert torch.allclose(chosen(real + 0j), torch.sin(real + 0j))


def test_a_rule_of_an_operator_that_torch_lacks_is_left_out() -> None:
    @complex_rule("aten::there_is_none_of_this_name")
    def rule(self: torch.Tensor) -> torch.Tensor:
        return self

    assert rule.__opbridge_complex_targets__ == (("aten::there_is_none_of_this_name",), False, False)
    assert "aten::there_is_none_of_this_name.default" not in rules()


class _Chain(torch.nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return (z * z + z).transpose(0, 1)[1:]


class _Flat(_Chain):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return super().forward(z).reshape(-1)


def test_parts_are_joined_once_at_the_end() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    program = torch.export.export(_Flat(), (z,))
    table = with_complex_rules({}, (), set())
    decomposed = program.run_decompositions(table)
    before = sum(node.target is aten.view_as_complex.default for node in calls_in(decomposed))
    simplify(decomposed)
    assert before > 1
    assert sum(node.target is aten.view_as_complex.default for node in calls_in(decomposed)) == 1
    assert torch.allclose(decomposed.module()(z), _Flat()(z))


MOVED = ("cat", "gather", "index_put", "masked_fill", "flip", "roll", "tril", "where", "cumsum", "index_select", "mean")
COMPUTED = (
    "mul",
    "true_divide",
    "exp",
    "log",
    "tanh",
    "acosh",
    "matmul",
    "addmm",
    "nn.functional.conv2d",
    "var",
    "eq",
    "any",
)


def _samples(names: tuple[str, ...]) -> list[Any]:
    found = [[call for call in database.calls_of(name, "complex64") if not call.has_empty_tensor] for name in names]
    return [calls[len(calls) // 2] for calls in found]


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("names", [MOVED, COMPUTED], ids=["moved", "computed"])
def test_samples_through_an_export(names: tuple[str, ...], tmp_path: Path) -> None:
    calls = _samples(names)
    tensors = tuple(tensor for call in calls for tensor in call.tensors)
    bundle = opbridge.export(Batch(calls), tensors, path=tmp_path / "bundle", verify=False)
    feeds = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
    found = iter(opbridge.load(bundle.path)(*(tensor.numpy() for tensor in feeds)))
    for call in calls:
        for expected in call():
            form = torch.view_as_real(expected.resolve_conj()) if expected.is_complex() else expected
            np.testing.assert_allclose(next(found), form.numpy(), 2e-5, 2e-5, err_msg=str(call))


def test_dynamic_sizes(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows")
    example = torch.randn(3, 4, dtype=torch.complex64)
    bundle = opbridge.export(_Chain(), (example,), path=tmp_path / "bundle", dynamic_shapes=({0: rows},), verify=False)
    z = torch.randn(7, 4, dtype=torch.complex64)
    (found,) = opbridge.load(bundle.path)(torch.view_as_real(z).numpy())
    np.testing.assert_allclose(found, torch.view_as_real(_Chain()(z).contiguous()).numpy(), 1e-5, 1e-5)


def test_transforms_keep_their_digits(tmp_path: Path) -> None:
    x = torch.randn(2, 31)

    def transforms(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfft(x)
        return spectrum, torch.fft.fft(spectrum), torch.fft.irfft(spectrum, 31)

    class Transforms(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return transforms(x)

    bundle = opbridge.export(Transforms(), (x,), path=tmp_path / "bundle", verify=False)
    for found, expected in zip(opbridge.load(bundle.path)(x.numpy()), transforms(x.double()), strict=True):
        form = torch.view_as_real(expected) if expected.is_complex() else expected
        assert np.abs(found - form.numpy()).max() < 1e-6 * expected.abs().max()


@pytest.mark.slow
def test_halves_and_parts_at_the_border(tmp_path: Path) -> None:
    class Border(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            half = x.half()
            parts = torch.view_as_real(torch.stft(x.cfloat(), 4, window=torch.ones(4), return_complex=True))
            # By its other name, and by real numbers, for which torch has a mapping of two complex ones.
            quotient = torch.divide(x.cfloat(), x.abs() + 1)
            return x.chalf(), torch.complex(half, half[:1]), parts, quotient

    x = torch.randn(8)
    bundle = opbridge.export(Border(), (x,), path=tmp_path / "bundle", verify=False)
    found = opbridge.load(bundle.path)(x.numpy())
    assert [result.dtype for result in found] == [np.float16, np.float16, np.float32, np.float32]
    for result, expected in zip(found, Border()(x), strict=True):
        form = torch.view_as_real(expected) if expected.is_complex() else expected
        np.testing.assert_allclose(result, form.numpy(), 1e-5, 1e-5)


def test_the_plan_says_which_rung_complex_tensors_take() -> None:
    from opbridge.capture.capture import capture
    from opbridge.catalog.declare.catalog import Catalog
    from opbridge.ladder.plan import plan

    class Products(torch.nn.Module):
        def forward(self, z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.sin(z), torch.cos(x)

    captured = capture(Products(), (torch.randn(2, dtype=torch.complex64), torch.randn(2)))
    steps = {step.target: step for step in plan(captured.program, Catalog.load()).steps}
    assert (steps["aten::sin"].rung, steps["aten::sin"].provider) == ("decompose", "catalog")
    assert steps["aten::sin"].detail == "computed with real and imaginary parts"
    assert steps["aten::cos"].rung == "native"
