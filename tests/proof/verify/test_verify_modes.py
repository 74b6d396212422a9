"""Each further mode of verification finds a fault that the mode without it lets pass, and no other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verify_models import Captured, ConvNet, Function, captured, onnx_model, session

from opbridge.errors import EngineError, InputError
from opbridge.proof.verify.modes import Modes
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.special import examined
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify

pytestmark = pytest.mark.newest

Dim = torch.export.Dim
Feeds = dict[str, np.ndarray]


_LOADED: list[tuple[Captured, Any]] = []


def loaded(item: Captured) -> Any:
    """A session of a model, made once."""
    found = next((inner for known, inner in _LOADED if known is item), None)
    if found is None:
        found = session(onnx_model(item))
        _LOADED.append((item, found))
    return found


class Faulty:
    """ONNX Runtime with a fault: ``fault`` sees the inputs and the results, and may change these."""

    def __init__(self, item: Captured, fault: Callable[[Feeds, Feeds], Any]) -> None:
        self.inner = loaded(item)
        self.fault = fault

    def run(self, feeds: Any) -> Feeds:
        results = {name: np.array(array) for name, array in self.inner.run(feeds).items()}
        self.fault(dict(feeds), results)
        return results


def verdicts(item: Captured, fault: Callable[[Feeds, Feeds], Any], modes: Modes) -> tuple[Verification, Verification]:
    """Without the mode, and with it."""
    engine = Faulty(item, fault)
    plain = verify(CapturedReference(item), engine, engine="faulty", options=VerifyOptions(seed=1))
    return plain, verify(CapturedReference(item), engine, engine="faulty", options=VerifyOptions(seed=1, modes=modes))


def wrong(results: Feeds) -> None:
    results["out_0"] += 1


EDGES = Modes(edge_sizes=True)


@functools.cache
def dynamic() -> Captured:
    torch.manual_seed(0)
    shapes = ({0: Dim("a"), 1: Dim("b"), 2: Dim("c")},)
    return captured(Function(lambda x: x * 2), (torch.randn(6, 6, 6),), shapes)


@functools.cache
def fixed() -> Captured:
    torch.manual_seed(0)
    return captured(Function(lambda x: x * 1.0), (torch.randn(8, 8),))


def failing_sizes(found: Verification) -> list[tuple[str, str]]:
    """The verdicts of the cases that do not pass, with the size at the edge."""
    return [(case.name.rpartition("=")[2], case.verdict) for case in found.cases if case.verdict != "passed"]


@pytest.mark.slow
def test_a_kernel_wrong_at_odd_sizes_of_a_late_dimension() -> None:
    def odd(feeds: Feeds, results: Feeds) -> None:
        if feeds["args_0"].shape[2] % 2:
            wrong(results)

    plain, _ = verdicts(dynamic(), odd, EDGES)
    assert [case.name for case in plain.cases if case.verdict == "failed"] == ["sizes 4", "sizes 6"]


@pytest.mark.quick("1")
@pytest.mark.parametrize("size", [0, 1])
def test_a_kernel_wrong_at_a_size_shows_at_the_edges(size: int) -> None:
    def fails(feeds: Feeds, results: Feeds) -> None:
        if feeds["args_0"].shape[0] == size:
            results["out_0"] = results["out_0"][..., None]

    plain, edges = verdicts(dynamic(), fails, EDGES)
    assert plain.passed
    assert failing_sizes(edges) == [(str(size), "failed")]


@pytest.mark.slow
def test_an_engine_that_refuses_empty_tensors_is_an_error_only_at_the_edges() -> None:
    def refuses(feeds: Feeds, results: Feeds) -> None:
        if not feeds["args_0"].size:
            raise EngineError("no empty tensors", fix="none")

    plain, edges = verdicts(dynamic(), refuses, EDGES)
    assert plain.passed
    assert edges.verdict == "error"
    assert failing_sizes(edges) == [("0", "error")] * 3


@pytest.mark.slow
def test_sound_models_pass_at_the_edges() -> None:
    image = ({0: Dim("n"), 2: Dim("h", min=16), 3: Dim("w", min=16)},)
    for module, args, shapes in (
        (ConvNet(), (torch.randn(2, 3, 24, 24),), image),
        (Function(lambda x: x.softmax(-1) @ x.transpose(0, 1)), (torch.randn(4, 6),), ({0: Dim.AUTO},)),
        (Function(lambda x: x.cumsum(0)), (torch.randint(0, 9, (4, 6)),), ({0: Dim.AUTO, 1: Dim.AUTO},)),
    ):
        item = captured(module, args, shapes)
        found = verify(CapturedReference(item), loaded(item), engine="onnxruntime", options=VerifyOptions(modes=EDGES))
        assert found.passed, found.summary()
        assert any(1 in case.sizes.values() for case in found.cases)


@pytest.mark.slow
def test_declared_ranges_are_kept_at_the_edges() -> None:
    item = captured(Function(lambda x: x + 1), (torch.randn(6, 3),), ({0: Dim("n", min=1)},))
    cases = verify(
        CapturedReference(item), loaded(item), engine="onnxruntime", options=VerifyOptions(modes=EDGES)
    ).cases
    assert [list(case.sizes.values()) for case in cases[3:]] == [[1]]


@pytest.mark.slow
def test_a_size_that_torch_took_for_granted_is_not_held_against_the_engine() -> None:
    class Special(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (1 if x.shape[0] == 1 else 2)

    item = captured(Special(), (torch.randn(6, 3),), ({0: Dim.AUTO},))
    for modes in (EDGES, Modes()):
        found = verify(CapturedReference(item), loaded(item), engine="onnxruntime", options=VerifyOptions(modes=modes))
        assert found.passed, found.summary()
        assert "=1 the captured graph does not compute what the module computes" in found.summary()


@pytest.mark.parametrize("differs", [True, False])
def test_a_size_of_one_that_differs_is_noted(differs: bool) -> None:
    function = (lambda x: x + (1 if x.shape[0] == 1 else 2)) if differs else (lambda x: x * 2)
    item = captured(Function(function), (torch.randn(6, 3),), ({0: Dim("n")},))
    found = verify(CapturedReference(item), loaded(item), engine="onnxruntime")
    assert found.passed, found.summary()
    assert ("if this size occurs, declare torch.export.Dim(" in found.summary()) is differs


def special(item: Captured, fault: Callable[[Feeds, Feeds], Any], mode: str = "report") -> Verification:
    plain, found = verdicts(item, fault, Modes(special_values=mode))
    assert plain.passed, plain.summary()
    return found


def kinds(found: Verification) -> dict[str, set[tuple[str, str]]]:
    """What differs by kind of special values: pairs of PyTorch's and the engine's."""
    return {s.values: {(d.torch, d.engine) for d in s.differences} for s in found.special_values if s.differences}


def _replace(where: Callable[[np.ndarray], np.ndarray], by: float) -> Callable[[Feeds, Feeds], None]:
    def fault(feeds: Feeds, results: Feeds) -> None:
        out = results["out_0"]
        out[where(out)] = by

    return fault


def _no_sign_of_zero(_: Feeds, results: Feeds) -> None:
    results["out_0"] += 0.0


@pytest.mark.quick("fault-expected1", "fault-expected5", every=3)
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (_replace(np.isnan, 0.0), {"NaN": {("NaN", "0")}}),
        (_replace(np.isneginf, np.inf), {"infinity": {("-infinity", "infinity")}}),
        (_no_sign_of_zero, {"-0": {("-0", "0")}}),
        (
            _replace(lambda a: (np.abs(a) < 1.18e-38) & (a != 0), 0.0),
            {"subnormal": {("a subnormal number", "0")}},
        ),
        (
            _replace(lambda a: np.abs(a) > 500, np.nan),
            {"large": {("a number", "NaN")}, "extremes": {("a number", "NaN")}},
        ),
        (_replace(lambda a: np.abs(a) > 1e30, 1.0), {"extremes": {("a number", "another number")}}),
    ],
)
def test_special_values_show_what_ordinary_ones_do_not(fault: Any, expected: dict[str, set[tuple[str, str]]]) -> None:
    found = special(fixed(), fault)
    shown = kinds(found)
    for kind, pairs in expected.items():
        assert shown[kind] == pairs
    # An infinity is a large number too for the fault that replaces large ones.
    assert set(shown) - {"infinity", "NaN"} <= set(expected)
    assert found.passed
    assert Verification.from_dict(found.to_dict()) == found
    required = verify(
        CapturedReference(fixed()),
        Faulty(fixed(), fault),
        engine="faulty",
        options=VerifyOptions(modes=Modes(special_values="require")),
    )
    assert required.verdict == "failed"


def operators(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *(x.softmax(-1), x @ x, x.relu() + x.abs(), x * x, x + x, x.exp()),
        *(x > 0, x.isnan(), x.nan_to_num(0.0), torch.where(x > 0, x, -x)),
    )


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_sound_operators_agree_on_special_values(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    item = captured(Function(operators), (torch.randn(8, 8).to(dtype),))
    found = verify(
        CapturedReference(item),
        session(onnx_model(item)),
        engine="onnxruntime",
        options=VerifyOptions(modes=Modes(special_values="require")),
    )
    assert {s.values for s in found.special_values} == {"NaN", "infinity", "-0", "subnormal", "large", "extremes"}
    assert found.passed, found.summary()


def test_what_is_right_by_chance_alone_is_not_listed() -> None:
    def chaotic(x: np.ndarray, dtype: type, turned: bool = False) -> np.ndarray:
        y = 1 / (1 + np.exp(-np.clip(x.astype(dtype), -8, 8)))
        for _ in range(60):
            y = dtype(3.9) * (y - y * y if turned else y * (1 - y))
        return y

    def reference(feeds: Feeds) -> tuple[Feeds, Feeds]:
        return {"y": chaotic(feeds["x"], np.float32)}, {"y": chaotic(feeds["x"], np.float64)}

    feeds = {"x": np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)}
    own, float64 = (outputs["y"] for outputs in reference(feeds))
    assert (np.abs(own - float64) < 0.01 * own).sum() > 10
    found = examined(feeds, reference, lambda given: {"y": chaotic(given["x"], np.float32, turned=True)}, seed=0)
    assert [item.verdict for item in found] == ["as PyTorch"] * 6


@pytest.mark.slow
def test_a_special_value_that_an_engine_does_not_survive_is_told() -> None:
    def fails(feeds: Feeds, results: Feeds) -> None:
        if np.isnan(feeds["args_0"]).any():
            raise EngineError("no NaN, please", fix="none")

    found = special(fixed(), fails)
    assert (found.special_values[0].values, found.special_values[0].verdict) == ("NaN", "error")
    assert "no NaN, please" in found.summary()


def small_input(
    folder: Path, item: Captured, fault: Callable[[Feeds, Feeds], Any], seconds: float = 600.0
) -> tuple[Verification, Feeds]:
    small = SmallInput(folder)
    engine = Faulty(item, fault)
    found = verify(
        CapturedReference(item),
        engine,
        engine="faulty",
        options=VerifyOptions(seed=1, modes=Modes(shrink=seconds), small=small),
    )
    assert found.verdict != "passed"
    assert [case.failing_input for case in found.cases if case.failing_input] == ["failing_input.npz"]
    with np.load(folder / small.name) as arrays:
        return found, dict(arrays)


@pytest.mark.slow
def test_a_failing_input_becomes_small(tmp_path: Path) -> None:
    def fault(feeds: Feeds, results: Feeds) -> None:
        if (feeds["args_0"] > 1.5).any() and feeds["args_0"].shape[0] >= 3:
            wrong(results)

    item = captured(Function(lambda x, y: x * 2 + y), (torch.randn(40, 9), torch.randn(9)), ({0: Dim("n")}, {}))
    _, small = small_input(tmp_path, item, fault)
    assert small["args_0"].shape == (3, 9)
    assert np.count_nonzero(small["args_0"]) == 1
    assert small["args_0"].max() == 2
    assert not small["args_1"].any()
    again = verify(CapturedReference(item), Faulty(item, fault), engine="faulty", options=VerifyOptions(inputs=[small]))
    assert not again.passed


@pytest.mark.slow
def test_two_elements_that_matter_are_both_kept(tmp_path: Path) -> None:
    def fault(feeds: Feeds, results: Feeds) -> None:
        if np.count_nonzero(feeds["args_0"]) >= 2:
            wrong(results)

    _, small = small_input(tmp_path, fixed(), fault)
    assert np.count_nonzero(small["args_0"]) == 2
    assert set(np.abs(small["args_0"]).reshape(-1)) == {0, 1}


@pytest.mark.slow
def test_an_error_of_the_engine_is_made_small_too(tmp_path: Path) -> None:
    def fault(feeds: Feeds, results: Feeds) -> None:
        if feeds["args_0"].max() >= 4:
            raise EngineError("an index out of range", fix="none")

    table = torch.randn(6, 3)
    found, small = small_input(tmp_path, captured(Function(lambda i: table[i]), (torch.arange(6),)), fault)
    assert found.verdict == "error"
    assert sorted(small["args_0"])[:-1] == [0] * 5
    assert small["args_0"].max() in (4, 5)


@pytest.mark.slow
def test_the_search_for_a_small_input_ends_in_time(tmp_path: Path) -> None:
    _, small = small_input(tmp_path, fixed(), lambda feeds, results: wrong(results), seconds=1e-3)
    assert np.count_nonzero(small["args_0"]) == 64


def test_modes_are_checked() -> None:
    with pytest.raises(InputError, match="special_values='yes'"):
        Modes.of(special_values="yes")
    with pytest.raises(InputError, match="shrink=-1"):
        Modes.of(shrink=-1)
    assert Modes.of(special_values=True).special_values == "report"
