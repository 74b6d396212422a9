"""Discrete decisions: near ties may fall either way, visible or hidden; anything else may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verify_models import Function, captured

from opbridge.proof.verify.captured_run import Decision
from opbridge.proof.verify.decisions import Choice, Deciding
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.suppression import suppression_objection
from opbridge.proof.verify.verify import verify

torch.manual_seed(0)
WEIGHT = torch.randn(64, 64)


class InDouble:
    """An engine that is right and rounds otherwise: it decides by float64 numbers, or by ones that are pushed."""

    def __init__(self, function: Any, dtypes: tuple[torch.dtype, ...], push: float = 0.0) -> None:
        self.function = function
        self.dtypes = dtypes
        self.push = push

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        inputs = [torch.from_numpy(array).double() for array in feeds.values()]
        results = self.function(*inputs, push=self.push)
        return {f"out_{i}": r.to(d).numpy() for i, (r, d) in enumerate(zip(results, self.dtypes, strict=True))}


def tie(x: torch.Tensor, push: float) -> torch.Tensor:
    """Row sums whose first two columns are equal but for rounding, so that ``push`` decides."""
    total = (x @ WEIGHT.to(x.dtype))[:, :6].clone()
    order = torch.arange(63, -1, -1)
    half = x @ WEIGHT[:, 7].to(x.dtype)
    other = x[:, order] @ WEIGHT[order, 7].to(x.dtype)
    top = total.abs().amax(-1) + 1
    return torch.cat([(top + half)[:, None], (top + other)[:, None] + push, total], 1)


def indices(x: torch.Tensor, push: float = 0.0) -> Any:
    scores = tie(x, push)
    return scores.argmax(-1), scores.sort(-1, descending=True)[1], scores.topk(3)[1]


def hidden(x: torch.Tensor, push: float = 0.0) -> Any:
    scores = tie(x, push)
    rows = torch.arange(8, dtype=x.dtype)[scores.argmax(-1)]
    return rows * 10, scores.topk(2)[1] * 3


def steps(x: torch.Tensor, push: float = 0.0) -> Any:
    scores = tie(x, push)
    gap = scores[:, 1] - scores[:, 0]
    return torch.floor(gap + 3), gap > 0, (gap + 5).to(torch.int64)


@pytest.mark.parametrize("push", [1e-6, -1e-6])
@pytest.mark.parametrize("function", [indices, hidden, steps])
def test_near_tie_may_fall_either_way(function: Any, push: float) -> None:
    torch.manual_seed(0)
    item = captured(Function(function), (torch.randn(12, 64),))
    dtypes = tuple(result.dtype for result in function(torch.randn(12, 64)))
    found = verify(CapturedReference(item), InDouble(function, dtypes, push), engine="double")
    assert found.passed, found.summary()
    assert "decision" in {comparison.status for comparison in found.comparisons}


def grey(x: torch.Tensor, push: float = 0.0) -> Any:
    """Means of four pixels of 8 bits, which PyTorch computes exactly and often in the middle between two integers."""
    wide = x.double() if push else x.float()
    return ((wide.mean(-1) + push).round().clamp(0, 255).to(torch.uint8),)


@pytest.mark.parametrize(("push", "passes"), [(1e-5, True), (-1e-5, True), (0.3, False)])
def test_a_tie_of_rounded_pixels_may_fall_either_way(push: float, passes: bool) -> None:
    torch.manual_seed(0)
    item = captured(Function(grey), (torch.randint(0, 256, (8, 6, 4), dtype=torch.uint8),))
    found = verify(CapturedReference(item), InDouble(grey, (torch.uint8,), push), engine="double")
    assert found.passed == passes, found.summary()


def test_a_decision_that_is_followed_keeps_the_dtype_of_each_run() -> None:
    floor = torch.ops.aten.floor.default
    gap = torch.tensor([2.9999998, 5.0])
    wide = torch.tensor([3.00000005, 5.0], dtype=torch.float64)
    decision = Decision("floor", floor, (gap,), {}, (wide,), {}, floor(gap), floor(gap).double())
    observer = Deciding(choices=[Choice("floor", 0, floor(wide).to(torch.float32))])
    own, float64 = observer.decide(decision)
    assert (own.tolist(), own.dtype) == ([3.0, 5.0], torch.float32)
    assert (float64.tolist(), float64.dtype) == ([3.0, 5.0], torch.float64)


def far_steps(x: torch.Tensor, push: float = 0.0) -> Any:
    scores = tie(x, push)
    gap = scores[:, 1] - scores[:, 0] + 1e-3
    return torch.floor(gap + 3), gap > 0, (gap + 5).to(torch.int64)


def test_decision_beyond_the_budget_fails() -> None:
    item = captured(Function(far_steps), (torch.randn(12, 64),))
    dtypes = (torch.float32, torch.bool, torch.int64)
    assert verify(CapturedReference(item), InDouble(far_steps, dtypes, 1e-6), engine="double").passed
    found = verify(CapturedReference(item), InDouble(far_steps, dtypes, -1e-2), engine="double")
    assert [comparison.status for comparison in found.comparisons] == ["differs"] * 3
    assert found.comparisons[1].detail == "12 of 12 decisions are wrong, not near ties"


def test_wrong_index_is_explained_by_its_margin() -> None:
    item = captured(Function(lambda x: (x @ WEIGHT).argmax(-1)), (torch.randn(10, 64),))
    engine = InDouble(lambda x, push: ((x @ WEIGHT.double()).argmin(-1),), (torch.int64,))
    found = verify(CapturedReference(item), engine, engine="double").comparisons[0]
    assert found.status == "differs"
    assert "10 of 10 indices are wrong: the selected numbers differ by up to" in found.detail


def test_comparison_of_exact_numbers_has_no_slack() -> None:
    """x > 0 on a ReLU's zeros is exact: an engine that computes x >= 0 is wrong."""
    item = captured(Function(lambda x: torch.relu(x) > 0), (torch.randn(50, 8),))
    engine = InDouble(lambda x, push: (torch.relu(x) >= 0,), (torch.bool,))
    assert verify(CapturedReference(item), engine, engine="double").verdict == "failed"


@pytest.mark.parametrize("name", ["cummax", "kthvalue", "median", "max", "mode"])
def test_selection_with_values_and_indices_passes_and_a_wrong_one_fails(name: str) -> None:
    def function(x: torch.Tensor, push: float = 0.0) -> Any:
        scores = x @ WEIGHT.to(x.dtype)
        return getattr(torch, name)(scores, *((3,) if name == "kthvalue" else ()), dim=-1)

    item = captured(Function(lambda x: tuple(function(x))), (torch.randn(12, 64),))
    dtypes = (torch.float32, torch.int64)
    assert verify(CapturedReference(item), InDouble(function, dtypes), engine="double").passed

    def wrong(x: torch.Tensor, push: float) -> Any:
        values, places = function(x)
        return values, (places + 1) % 64

    assert verify(CapturedReference(item), InDouble(wrong, dtypes), engine="double").verdict == "failed"


def test_search_in_a_computed_table_and_its_fault() -> None:
    def function(x: torch.Tensor, push: float = 0.0) -> Any:
        table = (x @ WEIGHT.to(x.dtype)).sort(-1)[0]
        return torch.searchsorted(table, x * 8 + push), (x * 8).nonzero()

    item = captured(Function(lambda x: function(x)), (torch.randn(12, 64),))
    dtypes = (torch.int64, torch.int64)
    assert verify(CapturedReference(item), InDouble(function, dtypes), engine="double").passed
    assert verify(CapturedReference(item), InDouble(function, dtypes, 3.0), engine="double").verdict == "failed"


BOXES = torch.tensor([[0.0, 0, 4, 4], [0, 1, 4, 5], [8, 8, 10, 10], [0, 0, 4, 3.2], [20, 20, 24, 24]])
"""The first overlaps the second by 0.6 and the fourth by 0.8."""
SCORES = torch.tensor([0.9, 0.9 - 1e-8, 0.5, 0.5 + 1e-8, 0.7])


@pytest.mark.parametrize(
    ("kept", "threshold", "objection"),
    [
        ([0, 4, 2], 0.5, ""),
        ([1, 4, 3, 2], 0.5, ""),
        ([1, 4, 2, 3], 0.5, ""),
        ([0, 4, 2], 0.6, ""),
        ([0, 1, 4, 2], 0.6, ""),
        ([0, 2, 4], 0.5, "1 of 3 boxes are kept before one with a better score"),
        ([0, 1, 4, 2], 0.5, "2 of 4 boxes overlap another that is kept"),
        ([0, 2], 0.5, "1 of 5 boxes are dropped though no box that is kept overlaps them"),
        ([4, 3, 2], 0.5, "2 of 5 boxes are dropped though no box that is kept overlaps them"),
        ([0, 4, 2, 2], 0.5, "an index appears twice"),
        ([0, 4, 5], 0.5, "an index is out of range"),
    ],
)
def test_boxes_may_be_kept_by_near_ties_alone(kept: list[int], threshold: float, objection: str) -> None:
    pytest.importorskip("torchvision")
    boxes, scores = BOXES.double(), SCORES.double()
    result = torch.ops.torchvision.nms(boxes, scores, threshold)
    arguments = (boxes, scores, threshold)
    decision = Decision(
        "nms", torch.ops.torchvision.nms.default, (BOXES, SCORES, threshold), {}, arguments, {}, result, result
    )
    slacks = {0: torch.full_like(boxes, 1e-6), 1: torch.full_like(scores, 1e-6)}
    assert suppression_objection(decision, slacks, torch.tensor(kept)) == objection


def kept_boxes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The boxes that a suppression keeps by scores that are all equal, and numbers made of them."""
    corners = torch.cat([x, x + 1], 1)
    kept = torch.ops.torchvision.nms(corners, 0.5 + 0 * x.mean(1).abs(), 0.5)
    return corners[kept], (x.sum(1) * 0.05).tanh()[kept]


class OtherOrder:
    """An engine, or a module, that keeps the same boxes in another order; ``wrong`` changes a result."""

    def __init__(self, wrong: Any = lambda boxes, numbers: (boxes, numbers)) -> None:
        self.wrong = wrong

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        boxes, numbers = (result.flip(0) for result in kept_boxes(torch.from_numpy(feeds["args_0"])))
        return {f"out_{i}": result.numpy() for i, result in enumerate(self.wrong(boxes, numbers))}


def shifted_box(boxes: torch.Tensor, numbers: torch.Tensor) -> Any:
    boxes[3] += 0.01
    return boxes, numbers


ORDERS = {
    "the same order": (lambda boxes, numbers: (boxes, numbers), True),
    "another for one output": (lambda boxes, numbers: (boxes, numbers.roll(1)), False),
    "a box that is off": (shifted_box, False),
    "a box twice": (lambda boxes, numbers: (boxes.roll(1)[:1].expand(boxes.shape), numbers), False),
}


@pytest.mark.parametrize("name", ORDERS)
def test_order_of_equal_boxes_is_inferred_and_must_be_that_of_all_outputs(name: str) -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    item = captured(Function(kept_boxes), (torch.rand(24, 2) * 9,))
    wrong, passes = ORDERS[name]
    found = verify(CapturedReference(item), OtherOrder(wrong), engine="other order")
    assert found.passed == passes, found.summary()
