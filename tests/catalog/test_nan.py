"""The contract about NaN: models without nodes that only NaN needs, and the calls that keep NaN nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from support.roundtrip import travel  # noqa: E402

from opbridge.catalog.declare.nan import checked_nan  # noqa: E402
from opbridge.errors import InputError  # noqa: E402
from opbridge.torch_graph.nan import nodes_before_nan_checks  # noqa: E402

INF, NAN = float("inf"), float("nan")
EXTREMES = torch.tensor([[0.0, -0.0, 1.0, -INF, 3.4e38], [INF, INF, -1.0, 1e-45, -1e-45], [-INF] * 5, [2.0] * 5])

LEAN: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "amax": (lambda x: x.amax(1), ["ReduceMax"]),
    "amin": (lambda x: x.amin((0, 1)), ["ReduceMin"]),
    "aminmax": (lambda x: tuple(torch.aminmax(x, dim=1)), ["ReduceMin", "ReduceMax"]),
    "argmax": (lambda x: x.argmax(1), ["ArgMax"]),
    "argmin": (lambda x: x.argmin(0, keepdim=True), ["ArgMin"]),
    "argsort": (lambda x: x.argsort(dim=1, stable=True), ["TopK"]),
    "max": (lambda x: x.max(), ["ReduceMax"]),
    "max along an axis": (lambda x: tuple(x.max(1)), ["ReduceMax", "ArgMax"]),
    "min along an axis": (lambda x: tuple(x.min(0)), ["ReduceMin", "ArgMin"]),
    "norm": (lambda x: torch.linalg.vector_norm(x, INF, 1), ["Abs", "ReduceMax"]),
    "sort": (lambda x: tuple(x.sort(dim=1, descending=True, stable=True)), ["TopK"]),
}
"""Calls, and the nodes that ONNX needs for them without NaN."""


@pytest.mark.quick("amin", "norm", every=3)
@pytest.mark.parametrize("name", LEAN)
def test_without_nan_an_operator_is_as_short_as_in_onnx(name: str) -> None:
    function, nodes = LEAN[name]
    lean = travel(function, (EXTREMES,), nan="absent")
    assert lean.op_types == nodes
    lean.check(EXTREMES, rtol=0, atol=0)


@pytest.mark.quick("lambda>0", "lambda>7", every=9)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: tuple(x.cummax(1)),
        lambda x: tuple(x.cummin(0)),
        lambda x: x.kthvalue(2, 1).values,
        lambda x: x.median(1).values,
        lambda x: x.scatter_reduce(1, torch.zeros(4, 5, dtype=torch.int64), x, "amax"),
        lambda x: x.index_reduce(0, torch.tensor([1, 1, 0, 2]), x, "amin"),
        lambda x: torch.nn.functional.adaptive_max_pool1d(x, 2, return_indices=True),
        lambda x: x.clamp(-1e30, 1e30) // 3.0,
        lambda x: x.clamp(-1e30, 1e30) // torch.tensor([INF, -INF, 0.5, 3.0, -3e-30]),
    ],
)
def test_other_operators_are_shorter_without_nan_and_right_for_extreme_numbers(function: Any) -> None:
    exact, lean = (travel(function, (EXTREMES,), nan=nan) for nan in ("exact", "absent"))
    assert len(lean.op_types) < len(exact.op_types)
    assert "IsNaN" not in lean.op_types
    lean.check(EXTREMES, rtol=0, atol=0)


def test_a_fully_masked_row_of_an_attention_is_0_without_nan_too() -> None:
    query, key, value = (torch.randn(2, 3, 4) for _ in range(3))
    for mask in (torch.tensor([[True, False, True], [False] * 3, [True] * 3]), torch.tensor([[0.0], [-INF], [1.0]])):
        trip = travel(torch.nn.functional.scaled_dot_product_attention, (query, key, value, mask), nan="absent")
        trip.check(query, key, value, mask)


@pytest.mark.parametrize("function", [torch.nn.functional.elu, torch.selu, lambda x: torch.celu(x, 0.5)])
def test_activations_keep_infinities_and_the_sign_of_0(function: Any) -> None:
    x = torch.tensor([0.0, -0.0, INF, -INF, 3.4e38, -3.4e38, 1e-7, -1e-7])
    trip = travel(function, (x,), nan="absent")
    trip.check(x, rtol=1e-6, atol=0)
    np.testing.assert_array_equal(np.signbit(trip.run(x)[0]), np.signbit(function(x).numpy()))


WITH_NAN = torch.tensor([[1.0, NAN, 3.0], [4.0, 5.0, 6.0], [NAN, NAN, NAN]])

SEEN: dict[str, Callable[..., Any]] = {
    "isnan": lambda x: torch.isnan(x.amax(1)),
    "nan_to_num": lambda x: x.amin(1).nan_to_num(7.0),
    "x != x": lambda x: (lambda y: y != y)(x.amax(1) * 2),
    "nanmedian": lambda x: x.nanmedian(1).values,
    "nansum": lambda x: x.sort(1).values.nansum(1),
    "fmax": lambda x: torch.fmax(x.amax(1), torch.zeros(3)),
    "inside a branch": lambda x: torch.cond(
        x.shape[0] > 2, lambda y: torch.isnan(y), lambda y: torch.isnan(y + 1), (x.max(1).values,)
    ),
    "after a change in place": lambda x: torch.isnan(torch.zeros(3).copy_(x.amax(1))),
    "through the index": lambda x: x.nan_to_num().gather(1, x.argmax(1, keepdim=True)).isfinite(),
}


@pytest.mark.quick("inside a branch", "through the index", every=3)
@pytest.mark.parametrize("name", SEEN)
def test_what_an_operator_that_detects_nan_may_see_keeps_nan(name: str) -> None:
    trip = travel(SEEN[name], (WITH_NAN,), nan="absent")
    with torch.no_grad():
        expected = trip.captured.module(WITH_NAN)
    np.testing.assert_array_equal(trip.run(WITH_NAN)[0], expected.numpy())


@pytest.mark.slow
def test_only_the_calls_before_such_an_operator_keep_nan() -> None:
    trip = travel(lambda x: (torch.isnan(x).any(1), x.amax(1)), (EXTREMES,), nan="absent")
    assert trip.op_types.count("IsNaN") == 1
    decomposed = travel(lambda x: (x.nanmedian(1).values, x.median(1).values), (EXTREMES,), nan="absent")
    one = travel(lambda x: x.nanmedian(1).values, (EXTREMES,), nan="absent")
    assert decomposed.op_types.count("IsNaN") == one.op_types.count("IsNaN")


def test_the_walk_finds_the_nodes_before_a_check() -> None:
    def function(x: Any) -> Any:
        seen = x + 1
        unseen = x * 2
        return torch.isnan(seen), unseen

    module = torch.export.export(travel(function, (EXTREMES,)).captured.module, (EXTREMES,)).module()
    names = {node.name for node in nodes_before_nan_checks(module) if node.op == "call_function"}
    assert names == {"add", "isnan"}


def test_an_unknown_contract_is_named() -> None:
    with pytest.raises(InputError, match="nan='never' is not valid"):
        checked_nan("never")
