"""A declared size that eager PyTorch accepts is valid in the captured program, or there is an error."""

from __future__ import annotations

import dataclasses
import math
import re
from operator import index, truth
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sympy
import torch
from torch.nn.functional import interpolate, max_pool2d, pad

import opbridge
from opbridge.capture import declared_sizes
from opbridge.capture.capture import capture
from opbridge.capture.control_flow.conversion import Conversions
from opbridge.capture.failures import CaptureFailure
from opbridge.errors import CaptureError, InputError
from opbridge.findings import restricted_dimension
from opbridge.findings.base import Finding
from opbridge.torch_graph.size_guards import SizeGuard
from opbridge.torch_graph.sources import SourceLine

Dim = torch.export.Dim
X = torch.arange(24.0).reshape(8, 3)


def as_tensor(x: torch.Tensor) -> torch.Tensor:
    length = torch.ceil(torch.as_tensor(3 * x.shape[0] / 2)).long()
    return x.repeat_interleave(2, 0)[:length]


def as_int(x: torch.Tensor) -> torch.Tensor:
    return x[: int(x.shape[0] * 0.3)]


def padded_if_odd(x: torch.Tensor) -> torch.Tensor:
    return (x, pad(x, (0, 0, 0, 1)))[truth(x.shape[0] % 2)]


def padded(x: torch.Tensor) -> torch.Tensor:
    return pad(x, (0, 0, 0, x.shape[0] % 2))


def branch(x: torch.Tensor) -> torch.Tensor:
    return (x + 1, x - 1)[truth(x.shape[0] < 10)]


def in_pairs(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 2, x.shape[1]).sum(1)


def of_equal_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() + (0, y.sum())[truth(x.shape[0] == y.shape[0])]


def nested(x: torch.Tensor, parts: dict[str, list[torch.Tensor]]) -> torch.Tensor:
    return x.sum() + (0, 1)[truth(parts["a"][0].shape[1] > 2)] * parts["a"][0]


def in_fours(x: torch.Tensor) -> torch.Tensor:
    """torch asks whether the number of fours is 1."""
    return (torch.ones(3, 4) @ x.reshape(3, -1, 4).transpose(1, 2)).clamp(min=0)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """torch asks whether the parts have one element."""
    y = torch.zeros_like(x)
    y[1:] = x[:-1]
    return y


def pairs_of_whole_pairs(x: torch.Tensor) -> torch.Tensor:
    """A view of an even number of columns, and a copy of any other."""
    n, m = x.shape
    x = x[:, : m // 2 * 2].reshape(n, -1, 2).sum(2)
    return x.T[:, : n // 3 * 3].reshape(-1, 3).sum(1)


def three_threes(x: torch.Tensor) -> torch.Tensor:
    return (x, x + 1)[truth(x.shape[0] // 3 == 3)]


def two_remainders(x: torch.Tensor) -> torch.Tensor:
    return x + (0, 1)[truth(x.shape[0] % 4)] + (0, 1)[truth(x.shape[0] // 4 % 4)]


def neither_remainder(x: torch.Tensor) -> torch.Tensor:
    return x + (0, 1)[truth(x.shape[0] % 4)] + (0, 1)[truth(x.shape[0] // 4 % 2)]


def one_row(x: torch.Tensor) -> torch.Tensor:
    return x[0] if x.shape[0] == 1 else x.sum(0)


def of_two_sizes(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if tuple(x.shape) == (10, 4) else x + 1


def with_positions(x: torch.Tensor) -> torch.Tensor:
    return x + POSITIONS[: x.shape[0]]


def with_positions_of_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([with_positions(x), y])


def of_rank_one_at_one(x: torch.Tensor) -> torch.Tensor:
    return x[:, :1].squeeze() + x[None].squeeze((0, 1)).mean(-1)


def row_by_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Before the loop is converted, its number of iterations restricts y."""
    rows = torch.stack([x[i] for i in range(x.shape[0])])
    return rows + y.expand(rows.shape)


POSITIONS = torch.arange(48.0).reshape(16, 3)
N = {"x": {0: "n"}}
FROM_ONE = {"x": {0: Dim("n", min=1)}}

RESTRICTED: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "as_tensor": (as_tensor, (X,), N, "(3*n) / 2 == 12.0", "if its size is always 8"),
    "divisible": (padded_if_odd, (X,), N, "n % 2 == 0", "declare 2 * torch.export.Dim('_n')"),
    "two remainders": (
        two_remainders,
        (X.reshape(-1, 1)[:16],),
        N,
        "n % 4 == 0",
        "declare 16 * torch.export.Dim('_n')",
    ),
    "a remainder that is not 0": (neither_remainder, (X[:4],), N, "n % 4 == 0", "if its size is always 4"),
    "limit": (branch, (X,), N, "n < 10", "declare torch.export.Dim('n', max=9)"),
    "marker": (branch, (X,), {"x": {0: Dim.DYNAMIC}}, "x.shape[0] < 10", "declare torch.export.Dim('n', max=9)"),
    "a named dimension": (branch, (X,), {"x": {0: Dim("n")}}, "n < 10", "declare torch.export.Dim('n', max=9)"),
    "one quotient": (three_threes, (X,), N, "(n//3) != 3", "declare torch.export.Dim('n', max=8)"),
    "equal": (of_equal_size, (X, X), {"x": {0: "n"}, "y": {0: "m"}}, "n == m", "give both one name"),
    "a rank": (of_rank_one_at_one, (X,), FROM_ONE, "n != 1", "declare torch.export.Dim('n', min=2)"),
    "nested": (
        nested,
        (X, {"a": [X.clone()]}),
        {"x": None, "parts": {"a": [{1: "n"}]}},
        "n > 2",
        "declare torch.export.Dim('n', min=3)",
    ),
}

ACCEPTED: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "arithmetic": (padded, (X,), N),
    "conversion": (as_int, (X,), N),
    "a table of positions": (with_positions, (X,), {"x": {0: Dim("n")}}),
    "declared limit": (branch, (X,), {"x": {0: Dim("n", max=9)}}),
    "declared multiple": (padded_if_odd, (X,), {"x": {0: 2 * Dim("_n")}}),
    "PyTorch refuses the others too": (in_pairs, (X,), N),
    "a quotient of 1 broadcasts": (in_fours, (X.reshape(3, 8),), {"x": {1: "n"}}),
    "a part that is written into": (shifted, (X,), N),
    "a rank that is given": (lambda x: x.squeeze(0).reshape(x.shape), (X,), FROM_ONE),
    "a part of one element": (shifted, (X[:2],), N),
    "a view at the size of the example": (pairs_of_whole_pairs, (X[:6].T,), {"x": {0: "n", 1: "m"}}),
    "a copy at the size of the example": (pairs_of_whole_pairs, (X[:5].T,), {"x": {0: "n", 1: "m"}}),
    "one name": (of_equal_size, (X, X), {"x": {0: "n"}, "y": {0: "n"}}),
    "a loop that fixes a size at first": (row_by_row, (X, X), {"x": {0: Dim("n", min=0)}, "y": {0: Dim("n", min=0)}}),
    "free to specialize": (branch, (X,), {"x": {0: Dim.AUTO}}),
    "not declared": (branch, (X,), None),
}


@pytest.mark.quick("a rank", "marker", every=0)
@pytest.mark.parametrize("case", RESTRICTED)
def test_a_size_that_pytorch_accepts_and_a_guard_excludes(case: str) -> None:
    model, args, shapes, condition, fix = RESTRICTED[case]
    with pytest.raises(CaptureError) as caught:
        capture(model, args, dynamic_shapes=shapes)
    assert f"the captured program requires {condition}" in caught.value.message
    assert "test_declared_sizes.py:" in caught.value.message
    assert fix in caught.value.fix
    assert caught.value.to_dict()["code"] == "restricted-dimension"


def test_conditions_that_are_not_reached_within_the_time_limit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_sizes, "_MOST_SECONDS", -1.0)
    diagnosis = opbridge.diagnose(branch, (X,), dynamic_shapes=N)
    (finding,) = [found for found in diagnosis.findings if found.code == "untried-condition"]
    assert finding.severity == "warning"
    assert "test_declared_sizes.py:" in finding.message


def test_a_remainder_that_is_not_defined_at_every_size() -> None:
    from torch.utils._sympy.functions import Mod

    rows = sympy.Symbol("rows", integer=True, positive=True)
    guard = SizeGuard(sympy.Eq(Mod(rows - 6, 4), 2), {rows: ("L['x'].size()[0]",)}, ())
    assert [guard.fails({"L['x'].size()[0]": size}) for size in (8, 9, 4)] == [False, True, False]


@pytest.mark.quick("a rank", "nested", every=0)
@pytest.mark.parametrize("case", ["divisible", "two remainders", "limit", "one quotient", "nested", "a rank"])
def test_the_fix_works_as_it_is_printed(case: str) -> None:
    model, args, shapes, _, _ = RESTRICTED[case]
    with pytest.raises(CaptureError) as caught:
        capture(model, args, dynamic_shapes=shapes)
    printed = re.match(r"declare (.+?\))", caught.value.fix)
    assert printed is not None
    declared = eval(printed[1], {"torch": torch})
    other = torch.utils._pytree.tree_map_only((str, Dim), lambda name: declared, shapes)
    assert capture(model, args, dynamic_shapes=other).program.range_constraints


def test_no_smaller_range_is_tried_that_the_condition_restricts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try traces the whole model; there is one more with the index as a part of the program."""
    tries, export = [], torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *args, **options: tries.append(1) or export(*args, **options))
    with pytest.raises(CaptureError, match="the captured program requires n < 10"):
        capture(branch, (X,), dynamic_shapes={"x": {0: Dim("n", min=1)}})
    assert len(tries) == 2


@pytest.mark.quick("arithmetic", "not declared", every=3)
@pytest.mark.parametrize("case", ACCEPTED)
def test_sizes_that_are_valid(case: str) -> None:
    model, args, shapes = ACCEPTED[case]
    captured = capture(model, args, dynamic_shapes=shapes)
    assert all(map(torch.equal, captured.args, args))


def test_a_program_that_was_captured_with_another_size_is_right_for_all() -> None:
    model, args, shapes = ACCEPTED["a view at the size of the example"]
    program = capture(model, args, dynamic_shapes=shapes).program.module()
    for shape in ((3, 6), (4, 6), (9, 5), (3, 8), (7, 7)):
        x = torch.rand(shape)
        assert torch.equal(program(x), model(x))


def test_a_named_dimension_that_the_model_limits_keeps_its_name_and_the_others_their_ranges() -> None:
    shapes = {"x": {0: Dim("n")}, "y": {0: Dim("k", max=30)}}
    captured = capture(with_positions_of_two, (X[:5], X[5:]), dynamic_shapes=shapes)
    limits = {captured.dimension_names[str(size)]: one for size, one in captured.program.range_constraints.items()}
    assert (set(limits), int(limits["k"].upper)) == ({"n", "k"}, 30)


def of_sixteens(x: torch.Tensor) -> torch.Tensor:
    return (x.sum(0), x.sum(0) + 1)[truth(x.shape[0] % 16)]


@pytest.mark.quick("rows1", every=3)
@pytest.mark.parametrize("rows", ["rows", Dim.DYNAMIC])
def test_a_remainder_is_zero_at_sizes_far_from_the_example(rows: Any) -> None:
    with pytest.raises(CaptureError, match=r"PyTorch accepts the size 16; .* requires .* % 16 != 0"):
        capture(of_sixteens, (X[:7],), dynamic_shapes={"x": {0: rows}})


@pytest.mark.slow
def test_a_condition_on_two_sizes_that_no_single_size_shows() -> None:
    found = capture(of_two_sizes, (X,), dynamic_shapes={"x": {0: "n", 1: "m"}})
    for shape in ((10, 4), (10, 3), (8, 4)):
        assert torch.equal(found.program.module()(torch.ones(shape)), of_two_sizes(torch.ones(shape)))


def test_a_batch_of_one_is_captured_at_two() -> None:
    found = capture(lambda x: x.reshape(x.shape[0], -1) + 1, (X[None],), dynamic_shapes=({0: "batch"},))
    assert [tuple(leaf.shape) for leaf in found.program.example_inputs[0]] == [(2, 8, 3)]
    assert [tuple(leaf.shape) for leaf in found.args] == [(1, 8, 3)]


def test_a_branch_for_a_batch_of_one_is_captured_for_the_others() -> None:
    found = capture(one_row, (X[:1],), dynamic_shapes=N)
    assert torch.equal(found.program.module()(X), X.sum(0))


def test_a_model_that_takes_one_row_only_is_captured_at_one() -> None:
    found = capture(lambda x: x + torch.ones(1, 3) if x.shape[0] < 2 else x[:, 5], (X[:1],), dynamic_shapes=({0: "n"},))
    assert [tuple(leaf.shape) for leaf in found.program.example_inputs[0]] == [(1, 3)]


class WithBias(torch.nn.Module):
    """torch asks whether n is 1, because the bias might broadcast."""

    def forward(self, q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        rows = bias[:, None].expand(-1, 2, -1).reshape(4, 1, -1)
        return torch.baddbmm(rows, q, q.mT)


def test_a_dimension_that_was_declared_from_one_is_right_at_one() -> None:
    n = Dim("n", min=1)
    captured = capture(WithBias(), (torch.rand(4, 3, 5), torch.rand(2, 3)), dynamic_shapes=({1: n}, {1: n}))
    assert [int(limits.lower) for limits in captured.program.range_constraints.values()] == [1]
    at_one = torch.rand(4, 1, 5), torch.rand(2, 1)
    assert torch.equal(captured.program.module(check_guards=False)(*at_one), WithBias()(*at_one))


@pytest.mark.slow
def test_a_dimension_that_was_declared_from_one_and_is_wrong_at_one() -> None:
    with pytest.raises(CaptureError, match=r"it needs x.shape\[0\] != 1"):
        capture(lambda x: x + (0, 1)[x.shape[0] in (1,)], (X,), dynamic_shapes={"x": {0: Dim("n", min=1)}})


def test_a_size_below_the_range_that_torch_concludes_may_be_right() -> None:
    """torch asks whether the quotient is 1, and concludes that n is at least 5."""

    def model(x: torch.Tensor) -> torch.Tensor:
        rows = (x.shape[2] - 1) // 4 + 1
        return torch.nn.functional.interpolate(x[:, :, :1], size=(rows, 8), mode="bilinear", align_corners=True)

    capture(model, (torch.rand(1, 1, 8, 8),), dynamic_shapes={"x": {2: Dim.DYNAMIC}})


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("limits", [{}, {"min": 4}, {"min": 4, "max": 64}, {"min": 1, "max": 64}], ids=str)
def test_windows_of_a_padded_size(limits: dict[str, int]) -> None:
    """torch asks whether nothing was padded, to know the strides."""

    def model(x: torch.Tensor) -> torch.Tensor:
        padded = pad(x, (0, 0, 0, (7 - x.shape[1] % 7) % 7))
        windows = padded.view(x.shape[0], -1, 7, 3).permute(1, 0, 2, 3).contiguous()
        whole = windows.permute(1, 0, 2, 3).reshape(x.shape[0], -1, 3)
        return whole[:, : x.shape[1]].contiguous().view(x.shape[0], -1)

    captured = capture(model, (torch.rand(2, 9, 3),), dynamic_shapes={"x": {1: Dim("n", **limits)}})
    for size in (6, 7, 8, 14):
        x = torch.rand(2, size, 3)
        assert torch.equal(captured.program.module(check_guards=False)(x), model(x))


@pytest.mark.slow
def test_stages_that_are_one_window_at_the_size_of_the_example() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            height, width = x.shape
            down, across = (height + 3) // 4, (width + 3) // 4
            windows = pad(x, (0, 4 * across - width, 0, 4 * down - height)).reshape(down, 4, across, 4).transpose(1, 2)
            weights = windows.reshape(-1, 16).softmax(-1).reshape(down, across, 4, 4)
            x = weights.transpose(1, 2).reshape(4 * down, 4 * across)[:height:2, :width:2] + 1
        return x

    program = capture(model, (torch.rand(8, 8),), dynamic_shapes=({0: "h", 1: "w"},)).program
    for size in ((8, 8), (33, 7), (5, 90)):
        x = torch.rand(size)
        torch.testing.assert_close(program.module(check_guards=False)(x), model(x))


@pytest.mark.slow
def test_a_condition_that_holds_in_the_declared_range_is_no_restriction() -> None:
    """torch can't prove that a number of blocks of 256 is 1."""

    def model(x: torch.Tensor) -> torch.Tensor:
        blocks = pad(x, (0, 0, 0, (256 - x.shape[0] % 256) % 256)).reshape(-1, 256, x.shape[1])
        return x + (0, 1)[truth(blocks.shape[0] != 1)]

    captured = capture(model, (X,), dynamic_shapes={"x": {0: Dim("n", min=1, max=64)}})
    (limits,) = captured.program.range_constraints.values()
    assert (int(limits.lower), int(limits.upper)) == (1, 64)
    with pytest.raises(CaptureError):
        capture(model, (X,), dynamic_shapes={"x": {0: Dim("n", min=1, max=300)}})


def pyramid(x: torch.Tensor) -> torch.Tensor:
    """Of up to 8 rows the levels have one row each, and that of the finer one is broadcast."""
    fine = torch.nn.functional.max_pool2d(x, (3, 1), (4, 1), (1, 0))
    coarse = torch.nn.functional.max_pool2d(fine, (3, 1), (2, 1), (1, 0))
    return torch.nn.functional.interpolate(coarse, scale_factor=(2, 1)) + fine


def test_a_level_of_a_pyramid_may_have_the_size_one() -> None:
    captured = capture(pyramid, (torch.randn(1, 2, 16, 3),), dynamic_shapes={"x": {2: Dim.DYNAMIC}})
    program = captured.program.module(check_guards=False)
    for rows in (4, 13, 32):
        x = torch.randn(1, 2, rows, 3)
        torch.testing.assert_close(program(x), pyramid(x))


@pytest.mark.parametrize("x", [torch.rand(7, 3), torch.arange(21).reshape(7, 3)], ids=["float", "integer"])
def test_branches_that_agree_for_small_numbers_only(x: torch.Tensor) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0:
            x = x.clamp(-50, 50)
        return 2 * x

    program = capture(model, (x,), dynamic_shapes={"x": {0: "n"}}).program.module()
    for rows in (4, 5):
        large = torch.full((rows, 3), 100).to(x.dtype)
        assert torch.equal(program(large), model(large))


def of_whole_squares(x: torch.Tensor) -> torch.Tensor:
    height, width = x.shape
    if height % 2 == 0 and width % 2 == 0:
        x = x.clamp(-50, 50)
    return 2 * x


def of_a_square(x: torch.Tensor) -> torch.Tensor:
    side = int(math.sqrt(x.shape[0]))
    if side * side == x.shape[0]:
        return x + x.view(side, side, -1).sum()
    return 2 * x


def of_equal_shapes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.shape == y.shape:
        return (x - y).sum(0)
    return x.sum(0) + y.sum(0)


@pytest.mark.parametrize(
    ("model", "example", "others"),
    [
        pytest.param(of_whole_squares, [(5, 7)], [[(4, 6)], [(4, 7)], [(5, 6)]], id="two remainders"),
        pytest.param(of_a_square, [(10, 1)], [[(9, 1)], [(16, 1)], [(15, 1)]], id="a square"),
        pytest.param(of_equal_shapes, [(6, 3), (7, 3)], [[(5, 3), (5, 3)], [(4, 3), (7, 3)]], id="equal shapes"),
    ],
)
def test_a_branch_that_the_sizes_of_the_example_do_not_take(model: Any, example: list[Any], others: list[Any]) -> None:
    axes = (0, 1) if model is of_whole_squares else (0,)
    args = tuple(map(torch.rand, example))
    captured = capture(model, args, dynamic_shapes=tuple(dict.fromkeys(axes, Dim.DYNAMIC) for _ in args))
    assert [operator for operator, _ in captured.converted] == ["If"]
    program = captured.program.module(check_guards=False)
    for sizes in others:
        args = tuple(100 * torch.rand(shape) for shape in sizes)
        torch.testing.assert_close(program(*args), model(*args))


def limited_from_six(x: torch.Tensor, k: int) -> torch.Tensor:
    return k * (x.clamp(-9, 9) if k > 5 else x)


def limited_if_even(x: torch.Tensor, k: int) -> torch.Tensor:
    if k % 2 == 0:
        x = x.clamp(-9, 9)
    return x[:k].sum(0)


def padded_or_limited(x: torch.Tensor, k: int) -> torch.Tensor:
    return pad(x, (0, 0, 0, k)) if k else x.clamp(-9, 9)


@pytest.mark.parametrize(
    ("model", "k", "others"),
    [
        pytest.param(limited_from_six, 3, (5, 6, 9), id="from six"),
        pytest.param(limited_if_even, 3, (2, 5, 8), id="if even"),
        pytest.param(padded_or_limited, 2, (0, 1, 5), id="zero"),
        pytest.param(limited_from_six, -3, (-2, 5, 6), id="negative"),
    ],
)
def test_a_condition_on_an_input_that_is_an_int(model: Any, k: int, others: tuple[int, ...]) -> None:
    captured = capture(model, (torch.rand(10, 3), k), dynamic_shapes=(None, Dim.DYNAMIC))
    program = captured.program.module(check_guards=False)
    x = 100 * torch.randn(10, 3)
    for other in others:
        torch.testing.assert_close(program(x, other), model(x, other))


def test_a_condition_on_an_int_in_a_list() -> None:
    def model(x: torch.Tensor, parts: dict[str, list[int]]) -> torch.Tensor:
        return limited_from_six(x, parts["k"][1])

    captured = capture(
        model, (torch.rand(10, 3), {"k": [2, 3]}), dynamic_shapes={"x": None, "parts": {"k": [None, Dim.DYNAMIC]}}
    )
    x = 100 * torch.randn(10, 3)
    torch.testing.assert_close(captured.program.module(check_guards=False)(x, {"k": [2, 7]}), 7 * x.clamp(-9, 9))


class Pair(NamedTuple):
    first: torch.Tensor
    rest: list[torch.Tensor]


@dataclasses.dataclass
class State:
    first: torch.Tensor
    rest: list[torch.Tensor]
    name: str = "state"
    count: int = 0


torch.export.register_dataclass(State)


@pytest.mark.parametrize("entry", ["list", "dict", "object"])
@pytest.mark.parametrize("kind", [Pair, State])
def test_a_condition_on_a_size_in_an_object(kind: Any, entry: str) -> None:
    def model(x: torch.Tensor, parts: Any) -> torch.Tensor:
        y = x * parts.rest[0].sum(0) + parts.first
        return y.clamp(-9, 9) if parts.rest[0].shape[0] > 5 else y

    entries = {"first": {0: "n"}, "rest": [{0: "m"}, None]}
    others = [None] * (2 if kind is State else 0)
    shapes = {"list": [*entries.values(), *others], "dict": entries, "object": kind(**entries)}[entry]
    args = torch.rand(4, 3), kind(torch.rand(4, 3), [torch.rand(3, 3), torch.rand(2)])
    captured = capture(model, args, dynamic_shapes={"x": {0: "n"}, "parts": shapes})
    assert sorted(captured.dimension_names.values()) == ["m", "n"]
    args = 100 * torch.rand(2, 3), kind(torch.rand(2, 3), [torch.rand(7, 3), torch.rand(2)])
    torch.testing.assert_close(captured.program.module(check_guards=False)(*args), model(*args))


def test_an_object_without_dynamic_sizes() -> None:
    def model(x: torch.Tensor, parts: State) -> torch.Tensor:
        return x + parts.first

    args = torch.rand(4, 3), State(torch.rand(3), [])
    assert list(capture(model, args, dynamic_shapes={"x": {0: "n"}}).dimension_names.values()) == ["n"]


def test_an_int_and_an_axis_of_one_name_are_varied_together() -> None:
    def model(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.reshape(n, 3).clamp(-9, 9) if n > 5 else x.reshape(n, 3)

    captured = capture(model, (torch.rand(3, 3), 3), dynamic_shapes=({0: "n"}, "n"))
    x = 100 * torch.randn(7, 3)
    torch.testing.assert_close(captured.program.module(check_guards=False)(x, 7), model(x, 7))


@pytest.mark.parametrize("declared", [Dim("k"), Dim("k", max=9)], ids=str)
def test_the_fix_for_an_int_with_a_name_works(declared: Any) -> None:
    with pytest.raises(InputError, match="a name to an input that is an int") as caught:
        capture(limited_from_six, (X, 3), dynamic_shapes=(None, declared))
    assert "torch.export.Dim.DYNAMIC(min=0, max=9)" in (caught.value.fix or "")
    capture(limited_from_six, (X, 3), dynamic_shapes=(None, Dim.DYNAMIC(min=0, max=9)))


def test_an_int_whose_condition_can_not_be_converted() -> None:
    def model(x: torch.Tensor, k: int) -> torch.Tensor:
        return (x + 1, x - 1)[truth(k < 10)]

    with pytest.raises(
        CaptureError, match=r"input k\. PyTorch accepts 11; the captured program requires k < 10"
    ) as caught:
        capture(model, (X, 3), dynamic_shapes=(None, Dim.DYNAMIC))
    assert "torch.export.Dim.DYNAMIC(max=9)" in (caught.value.fix or "")
    capture(model, (X, 3), dynamic_shapes=(None, Dim.DYNAMIC(max=9)))


def test_upsampling_that_is_told_the_size_only_where_it_is_odd() -> None:
    """The U-Net of Stable Diffusion; its rest would otherwise be in both branches."""

    def model(x: torch.Tensor) -> torch.Tensor:
        tells_size = False
        for size in x.shape[-2:]:
            if size % 2 != 0:
                tells_size = True
                break
        down = max_pool2d(x, 2, ceil_mode=True)
        size = x.shape[-2:] if tells_size else None
        up = interpolate(down, scale_factor=2.0) if size is None else interpolate(down, size=size)
        return up - x

    captured = capture(model, (torch.randn(1, 2, 8, 6),), dynamic_shapes={"x": {2: "height", 3: "width"}})
    assert not captured.converted
    program = captured.program.module(check_guards=False)
    for height, width in ((8, 6), (9, 6), (4, 7), (5, 9)):
        x = torch.randn(1, 2, height, width)
        torch.testing.assert_close(program(x), model(x))


@pytest.mark.slow
def test_branches_that_agree_for_ones_only() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x + 1, x * 2)[index(x.shape[0] % 2)]

    with pytest.raises(CaptureError, match="PyTorch accepts the size"):
        capture(model, (torch.ones(4, 3),), dynamic_shapes={"x": {0: "n"}})


def test_a_number_of_parts_that_changes_nothing() -> None:
    """TabNet normalizes parts of the batch, each with the running averages."""
    norm = torch.nn.BatchNorm1d(3).eval()

    def model(x: torch.Tensor) -> torch.Tensor:
        parts = index((x.shape[0] + 127) // 128)
        return torch.cat([norm(part) for part in x.chunk(parts)])

    program = capture(model, (X,), dynamic_shapes={"x": {0: "n"}}).program.module(check_guards=False)
    program._forward_pre_hooks.clear()  # torch concludes that there are at most 128 rows.
    x = torch.randn(300, 3)
    torch.testing.assert_close(program(x), model(x))


@pytest.mark.slow
def test_branches_whose_results_differ_little() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        correction = 1e-3 * x.softmax(0)
        return x + (correction, -correction)[truth(x.shape[0] == 9)]

    with pytest.raises(CaptureError, match="PyTorch accepts the size 9"):
        capture(model, (X,), dynamic_shapes=({0: Dim("rows", max=20)},))


def test_a_result_that_is_a_number() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return x + (0, 0 * x)[truth(x.shape[0] == 9)], x.mean().item() / 3

    capture(model, (X,), dynamic_shapes=({0: Dim("rows", max=20)},))


def test_a_replacement_that_rounds_less_well() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        similar = (x + 1e-4 * (not torch.compiler.is_exporting())) * 1.0
        return similar + (0, 0 * x)[truth(x.shape[0] == 9)]

    capture(model, (X,), dynamic_shapes=({0: Dim("rows", max=20)},))


def test_axes_of_one_name_have_one_size_from_the_beginning() -> None:
    def model(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        batch, channels, _ = x.shape
        return x * gain.view(batch, channels, -1)

    shapes = ({0: "batch", 2: "time"}, {0: "batch"})
    program = capture(model, (torch.ones(2, 1, 5), torch.ones(2)), dynamic_shapes=shapes).program.module()
    x, gain = torch.randn(3, 1, 4), torch.randn(3)
    torch.testing.assert_close(program(x, gain), model(x, gain))


class Branches(torch.nn.Module):
    """A branch on two sizes."""

    def __init__(self, condition: Any) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.condition(*x.shape) else x + 1


def _number_and_equal(height: int, width: int) -> bool:
    return height * width == 1369 and height == width


def _grid(height: int, width: int) -> bool:
    return height // 14 * (width // 14) == 1369 and height == width


def _remainder_and_large(height: int, width: int) -> bool:
    return height % 7 == 3 and height > 200


def _logarithm(height: int, width: int) -> bool:
    return int(math.log2(height)) > 8


def _half(height: int, width: int) -> bool:
    return int(height * 0.5) > 200


CONDITIONS: dict[str, tuple[Any, list[tuple[int, int]]]] = {
    "a square": (lambda height, width: height * height > 50000, [(230, 3), (21, 900)]),
    "a remainder": (_remainder_and_large, [(206, 3), (17, 3)]),
    "a logarithm": (_logarithm, [(600, 3), (511, 3)]),
    "a conversion": (_half, [(402, 3), (401, 3)]),
    "equal": (lambda height, width: height == width, [(20, 900), (9, 9)]),
    "larger": (lambda height, width: height > width, [(900, 20), (3, 4)]),
    "a number": (_number_and_equal, [(37, 37), (3, 4)]),
    "a grid": (_grid, [(518, 518), (518, 525)]),
}


@pytest.mark.quick(every=4)
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_branch_that_differs_far_from_the_example(name: str, tmp_path: Path) -> None:
    condition, shapes = CONDITIONS[name]
    model, example = Branches(condition), torch.randn(20, 900)
    bundle = opbridge.export(model, (example,), path=tmp_path / "bundle", dynamic_shapes=({0: "h", 1: "w"},))
    assert bundle.verified
    run = opbridge.load(bundle.path)
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(torch.from_numpy(run(x.numpy())[0]), model(x))


_NATIVE = (28, 42)


def _one_shape(height: int, width: int) -> bool:
    return (height, width) == _NATIVE


def _between(height: int, width: int) -> bool:
    return max(height, width) > 50 and min(height, width) < 30


def _two_shapes(height: int, width: int) -> bool:
    return (height, width) in [(14, 28), _NATIVE]


@pytest.mark.parametrize(
    ("condition", "special"),
    [
        pytest.param(_grid, (518, 518), id="a grid"),
        pytest.param(_one_shape, _NATIVE, id="one shape"),
        pytest.param(_two_shapes, _NATIVE, id="two shapes"),
        pytest.param(_between, (56, 28), id="extremes", marks=pytest.mark.slow),
        pytest.param(lambda height, width: height > 300, (308, 28), id="a limit", marks=pytest.mark.slow),
    ],
)
def test_a_branch_on_sizes_that_are_multiples_of_a_dimension(condition: Any, special: tuple[int, int]) -> None:
    model, shapes = Branches(condition), {"x": {0: 14 * Dim("rows", max=60), 1: 14 * Dim("columns", max=60)}}
    captured = capture(model, (torch.randn(70, 98),), dynamic_shapes=shapes)
    program = captured.program.module(check_guards=False)
    for shape in (special, (28, 56), (56, 42)):
        x = torch.randn(shape)
        torch.testing.assert_close(program(x), model(x))


def test_sizes_that_torch_makes_equal_at_the_example_stay_apart() -> None:
    """For heads of one size, torch takes an implementation of attention for which those of the values are equal too."""
    q, k, v = (torch.rand(2, 3, length, 8) for length in (5, 7, 7))
    shapes = tuple(dict.fromkeys(range(4), Dim.DYNAMIC) for _ in range(3))
    program = capture(torch.nn.functional.scaled_dot_product_attention, (q, k, v), dynamic_shapes=shapes).program
    head, _, other = (node.meta["val"].shape[3] for node in program.graph.find_nodes(op="placeholder"))
    assert head.node.expr != other.node.expr


def halves(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 4:
        return x[: x.shape[0] // 2]
    return x


def doubled(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] != 5:
        return x + x
    return x


def restriction(function: Any, condition: str) -> CaptureFailure:
    line = SourceLine(__file__, function.__code__.co_firstlineno + 1)
    return CaptureFailure(Finding(restricted_dimension.CODE, "x", condition, "leave it out"), details="", lines=[line])


@pytest.mark.parametrize(("last", "reported"), [("n != 5", "n != 5"), ("max(0, min(9, n)) * " * 50, "n != 4")])
def test_a_long_condition_after_a_branch_is_not_reported(last: str, reported: str) -> None:
    conversions = Conversions()
    assert conversions.extend(restriction(halves, "n != 4"), can_go_on=True)
    assert conversions.extend(restriction(doubled, last), can_go_on=True)
    found = conversions.without_sizes(restriction(doubled, last))
    assert found.message == reported
