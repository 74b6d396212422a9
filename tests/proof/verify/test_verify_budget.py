"""The figures beside the verdict, and the budget in every floating-point type: faults fail, ill conditions do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from verify_models import Captured, Function, captured

from opbridge.proof.verify.compare import error_units
from opbridge.proof.verify.figures import histograms, relative_error, ulps
from opbridge.proof.verify.inputs import to_numpy, to_torch
from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import Comparison, Verification
from opbridge.proof.verify.verify import verify

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_ulps_count_the_numbers_between(dtype: Any) -> None:
    one, eps = np.array([1.0], dtype), float(ml_dtypes.finfo(dtype).eps)
    tiny = np.array([float(ml_dtypes.finfo(dtype).smallest_subnormal)], dtype)
    assert ulps(one, one) == 0
    assert ulps(np.array([1 + 3 * eps], dtype), one) == 3
    assert ulps(np.array([1 - eps], dtype), one) == 2
    assert ulps(tiny, -tiny) == 2
    assert ulps(np.array([0.0], dtype), np.array([-0.0], dtype)) == 0
    nan = np.array([np.nan], dtype)
    assert ulps(nan, nan) == 0
    assert ulps(nan, one) == np.inf
    assert np.isfinite(ulps(np.array([-1e4], dtype), np.array([1e4], dtype)))


def test_histograms_count_every_element_under_common_bounds() -> None:
    units = np.array([0.0, 0.125, 0.126, 1.0, 1.5, 8.0, np.inf, 2.0**60])
    engine, own = histograms(units, np.array([0.0, 3.0]))
    assert [bound for bound, _ in engine] == [bound for bound, _ in own]
    assert dict(engine) == {0.125: 2, 0.25: 1, 0.5: 0, 1.0: 1, 2.0: 1, 4.0: 0, 8.0: 1, np.inf: 2}
    assert sum(count for _, count in own) == 2
    assert histograms(np.zeros(0), np.zeros(0)) == (((0.125, 0), (np.inf, 0)),) * 2


def test_relative_errors_are_of_the_typical_magnitude() -> None:
    float64 = np.full(1000, 4.0)
    assert relative_error(float64 * 1.25, float64) == pytest.approx(0.25)
    assert relative_error(np.where(np.arange(1000) < 5, 99.0, float64), float64) == 0
    assert relative_error(np.ones(3), np.zeros(3)) == np.inf
    assert relative_error(np.array([np.nan]), np.array([np.nan])) == 0


class Recomputed:
    """An engine that computes the model by ``function``, in PyTorch."""

    def __init__(self, item: Captured, function: Callable[..., Any]) -> None:
        self.item = item
        self.function = function

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        tensors = [to_torch(np.asarray(feed), like) for feed, like in zip(feeds.values(), self.item.args, strict=True)]
        return {"out_0": to_numpy(self.function(*tensors))}


def compared(
    model: Callable[..., Any], engine: Callable[..., Any], *args: torch.Tensor, given: bool = False
) -> Comparison:
    """``given``: on the arguments themselves, not on fresh ones."""
    item = captured(Function(model), args)
    inputs = [dict(zip(item.input_names, map(to_numpy, args), strict=True))] if given else None
    found = verify(
        CapturedReference(item), Recomputed(item, engine), engine="recomputed", options=VerifyOptions(inputs=inputs)
    )
    assert Verification.from_dict(found.to_dict()) == found
    return found.comparisons[0]


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def network(scale: float, order: int = 1) -> Callable[..., torch.Tensor]:
    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            product = (x.flip(-1) @ weight.flip(0)) if order < 0 else x @ weight
            x = torch.nn.functional.gelu(product * scale) + x
        return x

    return forward


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_has_a_budget_that_faults_do_not_fit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    args = torch.randn(20, 48).to(dtype), (torch.randn(48, 48) / 7).to(dtype)
    sound = compared(network(1.0), network(1.0, -1), *args)
    assert sound.passed, sound
    coarse = dtype.itemsize == 2
    assert sound.max_ulp < 1e5
    assert coarse or sound.max_ulp > 0
    assert sum(count for _, count in sound.histogram) == sum(count for _, count in sound.torch_histogram) == 20 * 48
    assert not sound.ill_conditioned
    faulty = compared(network(1.0), network(1.06 if coarse else 1.0002), *args)
    assert faulty.status == "differs", faulty
    assert "ill-conditioned" not in faulty.detail
    assert faulty.relative_error > faulty.torch_relative_error


def solve(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(matrix, x)


def nearly_singular(power: int) -> torch.Tensor:
    torch.manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64))
    return left * torch.logspace(0, power, 30, dtype=torch.float64) @ right


def solve_by_qr(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    q, r = torch.linalg.qr(matrix)
    return torch.linalg.solve_triangular(r, q.T @ x, upper=True)


@pytest.mark.parametrize(("dtype", "power"), [(torch.float32, -6), (torch.float64, -13)])
def test_a_nearly_singular_solve_is_ill_conditioned_not_wrong(dtype: torch.dtype, power: int) -> None:
    matrix = nearly_singular(power).to(dtype)
    args = torch.randn(30, 20, dtype=dtype), matrix
    found = compared(solve, solve_by_qr, *args, given=True)
    assert found.passed, found
    assert found.ill_conditioned or dtype is torch.float64
    worse = compared(solve, lambda x, a: solve(x, a) * 1.5, *args, given=True)
    assert worse.status == "differs"
    assert worse.ill_conditioned
    assert "ill-conditioned on this input: the relative error of PyTorch's own result is" in worse.detail
    name, eps = str(dtype).removeprefix("torch."), torch.finfo(dtype).eps
    assert f"the machine epsilon of {name} is {eps:.2g}" in worse.detail


def test_a_solve_with_a_constant_matrix_in_float64_is_ill_conditioned_not_wrong() -> None:
    matrix = nearly_singular(-11).double()
    x = torch.randn(30, 20, dtype=torch.float64)
    found = compared(lambda x: solve(x, matrix), lambda x: solve_by_qr(x, matrix), x)
    assert found.passed, found
    worse = compared(lambda x: solve(x, matrix), lambda x: solve(x, matrix) * 1.5, x)
    assert worse.status == "differs"


def test_many_elements_that_depend_on_one_lucky_inverse_are_not_called_wrong() -> None:
    """The inverse of this matrix of small integers is exact in PyTorch; rounding its elements changes it by 1e-4."""

    def mapped(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(matrix) @ x

    def rounded(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return mapped(x, matrix + torch.tensor([[0.0, 0.0], [0.0, 2.0**-23]]))

    args = torch.randn(2, 4000), torch.tensor([[1.0, 1.0], [1.0, 1 + 2.0**-10]])
    found = compared(mapped, rounded, *args, given=True)
    assert found.passed, found
    assert compared(mapped, lambda x, m: rounded(x, m) * 1.01, *args, given=True).status == "differs"
    item = captured(Function(mapped), args)
    reference = CapturedReference(item)
    feeds = dict(zip(item.input_names, map(to_numpy, args), strict=True))
    for factor, expected in ((1, True), (1.01, False)):
        judgement = Judgement(reference, "given", feeds, reference.run(feeds), None, 0)
        assert judgement.eager_matches([to_numpy(rounded(*args) * factor)]) is expected


def test_a_deep_chain_and_a_long_sum_are_not_called_wrong() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = (x * 30).softmax(-1) * 5
        return x

    def other_chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            shifted = ((x * 30) - (x * 30).max(-1, keepdim=True)[0]).exp()
            x = shifted / shifted.sum(-1, keepdim=True) * 5
        return x

    torch.manual_seed(0)
    assert compared(chain, other_chain, torch.randn(40, 12)).passed
    terms = torch.randn(4, 1 << 18) * 1e3
    assert compared(lambda x: x.sum(-1), lambda x: x.reshape(4, 512, -1).sum(1).sum(-1), terms).passed


def test_operators_without_float64_are_named() -> None:
    weight = torch.randn(6, 5)

    def quantized(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight).to(torch.bfloat16).view(torch.int16).float()

    item = captured(Function(quantized), (torch.randn(3, 5),))
    found = verify(CapturedReference(item), Recomputed(item, quantized), engine="recomputed")
    assert any("has no float64 implementation: it ran in its own dtype" in note for note in found.cases[0].notes)


def test_an_engine_that_is_right_where_pytorch_overflows_is_held_to_the_reference() -> None:
    half = np.dtype(np.float16)
    own, float64 = np.array([np.inf, np.nan, np.nan, 2.0]), np.array([30.5, -2.0, 1e6, 2.0])
    right = error_units(np.array([30.5, -2.0, np.inf, 2.0]), own, float64, half)
    assert right.tolist() == [0, 0, 0, 0]
    wrong = error_units(np.array([31.5, 2.0, -np.inf, np.nan]), own, float64, half)
    assert wrong[0] == pytest.approx(1 / (30.5 * 2**-10))
    assert wrong[1] > 1000
    assert wrong[2:].tolist() == [np.inf, np.inf]
