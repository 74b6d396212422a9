"""Rewrites: in force while capturing, under every alias of the function, and gone afterwards."""

from __future__ import annotations

import random as library
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from random import uniform

import numpy as np
import pytest
import torch
from roundtrip import travel
from torch.nn import functional

from opbridge.capture.capture import capture
from opbridge.capture.rewriting import Used, rewriting
from opbridge.catalog.declare.spec import OpSpec
from opbridge.errors import InputError


def spec(target: str, function: object) -> OpSpec:
    return OpSpec(target, "rewrite", function, source="test_rewriting.py:1")


OFFSET = 10


def plain(x, y=1, *rest, scale=2, **options):
    return ("plain", x, y, rest, scale, options, OFFSET)


def make_closure(seen):
    def closure(x, power=3):
        seen.append(x)
        return x**power

    return closure


SEEN: list[int] = []
closure = make_closure(SEEN)


class Thing:
    factor = 5

    def method(self, x, *, plus=1):
        return self.factor * x + plus

    @classmethod
    def made(cls, x):
        return cls.factor - x

    @staticmethod
    def free(x):
        return x - 1


def numbers(limit):
    yield from range(limit)


alias = plain
module = sys.modules[__name__]
other = types.ModuleType("opbridge_test_other")
other.borrowed = plain


@contextmanager
def rewritten(name: str, function: object) -> Iterator[Used]:
    with rewriting([spec(f"{__name__}.{name}", function)]) as used:
        yield used


class Counted(torch.nn.Module):
    def forward(self, x, scale):
        return x * float(scale.sum())


Counted.forward.note = 1


def test_every_alias_runs_the_replacement_and_the_original_is_the_first_argument() -> None:
    def replacement(original, x, *args, **kwargs):
        return ("replaced", original(x, *args, **kwargs))

    expected = ("replaced", ("plain", 0, 7, (8,), 9, {"z": 1}, 10))
    before = (plain.__code__, plain.__defaults__, plain.__kwdefaults__)
    with rewritten("plain", replacement) as used:
        for call in (plain, alias, other.borrowed):
            assert call(0, 7, 8, scale=9, z=1) == expected
        assert plain(1) == ("replaced", ("plain", 1, 1, (), 2, {}, 10)), "defaults are the original's"
    assert list(used) == [f"{__name__}.plain"]
    assert (plain.__code__, plain.__defaults__, plain.__kwdefaults__) == before
    assert plain(1) == ("plain", 1, 1, (), 2, {}, 10)


def test_a_function_imported_by_name_from_a_library() -> None:
    with rewriting([spec("random.Random.uniform", lambda original, self, a, b: 42.0)]):
        assert library.uniform(0, 1) == uniform(0, 1) == 42.0
    assert uniform(0, 1) <= 1


def test_a_closure_keeps_its_cells() -> None:
    SEEN.clear()
    with rewritten("closure", lambda original, x, power=2: original(x, power) + 1):
        assert closure(3) == 10
    assert closure(2) == 8
    assert SEEN == [3, 2]


def test_methods_of_all_kinds() -> None:
    thing = Thing()
    with rewritten("Thing.method", lambda original, self, x, **kwargs: -original(self, x, **kwargs)):
        assert thing.method(2, plus=3) == -13
        assert Thing.method(thing, 2) == -11
    with rewritten("Thing.made", lambda original, cls, x: 10 * original(cls, x)):
        assert Thing.made(1) == 40
    with rewritten("Thing.free", lambda original, x: 10 * original(x)):
        assert thing.free(3) == Thing.free(3) == 20
    assert (thing.method(2, plus=3), Thing.made(1), Thing.free(3)) == (13, 4, 2)


def test_a_generator() -> None:
    with rewritten("numbers", lambda original, limit: list(original(limit + 1))):
        assert numbers(2) == [0, 1, 2]
    assert list(numbers(2)) == [0, 1]


@pytest.mark.parametrize("target", ["torch.roll", "torch.Tensor.roll"])
def test_a_torch_function(target: str) -> None:
    x = torch.arange(4.0)
    call = (lambda: torch.roll(x, 1)) if target == "torch.roll" else (lambda: x.roll(1))
    with rewriting([spec(target, lambda original, x, *args, **kwargs: original(x, *args, **kwargs) * 10)]) as used:
        assert call().tolist() == [30, 0, 10, 20]
    assert list(used) == [target]
    assert call().tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("target", ["torch.roll", "torch.nn.functional.fold"])
def test_numbers_of_numpy(target: str) -> None:
    seen = []

    def replacement(original, x, *args):
        seen.append(repr(args))
        return original(x, *args)

    with rewriting([spec(target, replacement)]):
        if target == "torch.roll":
            torch.roll(torch.arange(4.0), (np.int64(1), 1), [np.int32(0), 0])
            assert seen == ["((1, 1), [0, 0])"]
        else:
            functional.fold(torch.ones(1, 4, 4), (np.int64(3), 3), np.int32(2))
            assert seen == ["((3, 3), 2)"]


def test_the_original_comes_back_after_an_error() -> None:
    code = plain.__code__
    with pytest.raises(ZeroDivisionError), rewritten("plain", lambda original, x: x / 0):
        plain(1)
    assert plain.__code__ is code
    with pytest.raises(InputError), rewriting([spec(f"{__name__}.plain", print), spec(f"{__name__}.absent", print)]):
        pass
    assert plain.__code__ is code


def test_nested_rewrites_of_one_function() -> None:
    with rewritten("Thing.free", lambda original, x: ("outer", original(x))):
        with rewritten("Thing.free", lambda original, x: ("inner", original(x))):
            assert Thing.free(1) == ("inner", ("outer", 0))
        assert Thing.free(1) == ("outer", 0)
    assert Thing.free(1) == 0


def test_two_paths_of_one_function() -> None:
    sys.modules["opbridge_test_other"] = other
    specs = [
        spec(f"{__name__}.plain", lambda original, x: ("first", original(x)[0])),
        spec("opbridge_test_other.borrowed", lambda original, x: ("second", original(x)[0])),
    ]
    try:
        with rewriting(specs):
            assert plain(1) == ("second", "first")
    finally:
        del sys.modules["opbridge_test_other"]
    assert plain(1)[0] == "plain"


def test_another_thread_sees_the_original_and_waits_with_rewrites_of_its_own() -> None:
    results: list[object] = []

    def elsewhere() -> None:
        results.append(Thing.free(1))
        with rewritten("Thing.free", lambda original, x: "theirs"):
            results.append(Thing.free(1))

    with rewritten("Thing.free", lambda original, x: "mine"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        while not results:
            pass
        assert Thing.free(1) == "mine"
        assert results == [0]
    thread.join()
    assert results == [0, "theirs"]
    assert Thing.free(1) == 0


def test_a_library_that_is_not_imported_is_left_alone() -> None:
    with rewriting([spec("a_library_that_is_not_there.function", print)]) as used:
        pass
    assert not list(used)


@pytest.mark.parametrize("target", ["torch.no_such_function", "torch.nn.functional.no_such", "torch.Tensor.no_such"])
def test_an_unknown_path(target: str) -> None:
    with pytest.raises(InputError, match="there is no such function") as caught, rewriting([spec(target, print)]):
        pass
    assert target in caught.value.message
    assert "check the import path" in caught.value.fix


@pytest.mark.parametrize("target", ["torch.pi", "torch.nn.Linear"])
def test_what_can_not_be_replaced(target: str) -> None:
    with pytest.raises(InputError, match="objects can't be replaced") as caught, rewriting([spec(target, print)]):
        pass
    assert "test_rewriting.py:1" in caught.value.message
    assert "name a Python function, a method or a torch function" in caught.value.fix


def norm_of(x):
    # Data-dependent control flow: this can't be captured as it stands.
    return x / x.norm() if float(x.norm()) > 0 else x


def traceable_norm(original, x):
    return torch.where(x.norm() > 0, x / x.norm().clamp(min=1e-30), x)


def test_what_can_not_be_captured_is_rewritten() -> None:
    rewrite = spec(f"{__name__}.norm_of", traceable_norm)
    call = lambda x: norm_of(x) + 1  # noqa: E731
    trip = travel(call, (torch.randn(4),), specs=[rewrite])
    (lines,) = trip.captured.rewrites.values()
    assert [line.rpartition("/")[2] for line in lines] == [f"test_rewriting.py:{call.__code__.co_firstlineno}"]
    (step,) = [step for step in trip.climbed.steps if step.rung == "rewrite"]
    assert (step.target, step.count, step.sources) == (f"{__name__}.norm_of", 1, lines)
    assert trip.rung(f"{__name__}.norm_of") == "rewrite"
    trip.check(torch.randn(4))
    trip.check(torch.zeros(4))


@pytest.mark.slow
def test_a_function_within_a_loop_is_the_original() -> None:
    def shifted_thrice(x: torch.Tensor) -> torch.Tensor:
        def shift(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return count + 1, torch.nn.functional.pad(x, (1, -1)) * 2

        return torch.while_loop(lambda count, x: count < 3, shift, (torch.tensor(0), x))[1]

    otherwise = spec("torch.nn.functional.pad", lambda original, x, amounts: x)
    captured = capture(shifted_thrice, (torch.randn(5),), rewrites=[otherwise])
    assert captured.rewrites == {}
    assert captured.program.module()(torch.arange(5.0)).tolist() == [0, 0, 0, 0, 8]


def test_a_torch_function_is_rewritten_while_capturing() -> None:
    def by_slices(original, x, shifts, dims):
        return torch.cat(
            [x.narrow(dims, x.shape[dims] - shifts, shifts), x.narrow(dims, 0, x.shape[dims] - shifts)], dims
        )

    trip = travel(lambda x: torch.roll(x, 1, 0), (torch.randn(4),), specs=[spec("torch.roll", by_slices)])
    assert list(trip.captured.rewrites) == ["torch.roll"]
    assert all("roll" not in str(node.target) for node in trip.captured.program.graph.nodes)
    trip.check(torch.randn(4))


def test_the_inputs_of_a_forward_pass_keep_their_names() -> None:
    rewrite = spec(f"{__name__}.Counted.forward", lambda original, self, x, scale: x * scale)
    program = capture(Counted(), (torch.ones(3),), {"scale": torch.ones(3)}, rewrites=[rewrite])
    assert program.input_names == ("x", "scale")
    assert list(program.rewrites) == [rewrite.target]
    assert vars(Counted.forward) == {"note": 1}
