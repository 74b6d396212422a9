"""Verification of sound models: they pass, whatever makes the engine's numbers differ from PyTorch's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from verify_models import (
    Altered,
    Attention,
    Captured,
    ConvNet,
    Function,
    Recurrent,
    SoftmaxChain,
    captured,
    onnx_model,
    session,
    verified,
)

from opbridge.errors import InputError
from opbridge.proof.verify.captured_graph import CapturedGraph
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import DEFAULT_SEED, Comparison, Verification
from opbridge.proof.verify.verify import verify

Dim = torch.export.Dim
torch.manual_seed(0)
WEIGHT = torch.randn(64, 64)


@pytest.mark.slow
def test_convolution_network_passes_at_four_sizes_of_every_dimension() -> None:
    shapes = ({0: Dim("n"), 2: Dim("h", min=12), 3: Dim("w", min=12)},)
    found = verified(ConvNet(), (torch.rand(2, 3, 24, 20),), shapes)
    assert found.passed, found.summary()
    assert [case.name for case in found.cases] == ["example sizes", *(f"sizes {number}" for number in range(2, 7))]
    for name in found.cases[0].sizes:
        assert len({case.sizes[name] for case in found.cases}) == 4
    assert found.seed == DEFAULT_SEED
    assert found.eager_matches_capture is True


@pytest.mark.slow
def test_attention_with_dynamic_sizes_passes() -> None:
    dims = {0: Dim("n"), 1: Dim("s")}
    args = (torch.randint(0, 50, (3, 9)), torch.ones(3, 9, dtype=torch.bool))
    found = verified(Attention(), args, (dims, dims))
    assert found.passed, found.summary()


@pytest.mark.quick(every=3)
@pytest.mark.parametrize(
    ("module", "args"),
    [
        (Recurrent(), (torch.randn(2, 12, 8),)),
        (SoftmaxChain(), (torch.randn(4, 48),)),
        (Function(lambda x: torch.softmax(x * 3, -1) @ x.T), (torch.randn(6, 64).half(),)),
        (Function(lambda x: torch.softmax(x @ WEIGHT.double(), -1)), (torch.randn(6, 64).double(),)),
    ],
    ids=["recurrent", "softmax chain", "float16", "float64"],
)
def test_reordered_arithmetic_passes(module: Any, args: Any) -> None:
    found = verified(module, args)
    assert found.passed, found.summary()
    assert all(comparison.ratio < 0.5 for comparison in found.comparisons)


@pytest.mark.slow
def test_integers_infinities_nans_and_empty_outputs_pass() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x @ WEIGHT
        return y.argmax(-1), (y > 0).sum(), torch.log(x.clamp(min=0)), x / (x - x), x[:, :0], y.sort(-1)[1]

    found = verified(Function(function), (torch.randn(20, 64),))
    assert found.passed, found.summary()
    assert found.comparisons[4].status == "equal"


@pytest.mark.slow
def test_divisible_dimension_is_honoured() -> None:
    found = verified(Function(lambda x: x.reshape(-1, 2, 4).sum(1)), (torch.randn(6, 4),), ({0: 2 * Dim("n", max=20)},))
    assert found.passed, found.summary()
    assert len({tuple(case.sizes.values()) for case in found.cases}) == 3


@pytest.mark.slow
def test_an_output_that_is_the_same_everywhere_is_noted() -> None:
    layer = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    item = captured(layer, (torch.randn(2, 4),))
    found = verify(CapturedReference(item), session(onnx_model(item)), engine="onnxruntime")
    assert found.passed
    note = f"all elements of {item.output_names[0]} are 0, so the comparison proves little"
    assert note in found.cases[0].notes


@pytest.mark.slow
def test_control_flow_with_an_input_as_trip_count_passes_with_another_count() -> None:
    class Loop(torch.nn.Module):
        def forward(self, n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            start = torch.zeros((), dtype=torch.int64)
            y = torch.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, (y * 1.1).sin()), (start, x))[1]
            return torch.cond(y.sum() > 0, lambda a: a.exp(), lambda a: a - 1, (y,))

    item = captured(Loop(), (torch.tensor(5), torch.randn(4, 4)))
    counts = []
    inner = session(onnx_model(item))

    class Counting:
        def run(self, feeds: Any) -> Any:
            counts.append(int(feeds["n"]))
            return inner.run(feeds)

    found = verify(CapturedReference(item), Counting(), engine="onnxruntime")
    assert found.passed, found.summary()
    assert [case.name for case in found.cases] == ["example sizes", "path 1", "path 2", "path 3"]
    # The first case runs several times, with the count 4.
    assert (counts[0], set(counts)) == (4, {0, 1, 4})


class Echo:
    """An engine that gives what the captured graph gives in its own dtype."""

    def __init__(self, item: Captured) -> None:
        self.item = item
        self.fed: list[dict[str, np.ndarray]] = []

    def run(self, feeds: Any) -> dict[str, np.ndarray]:
        self.fed.append(dict(feeds))
        values = [torch.from_numpy(np.array(feeds[name])) for name in self.item.input_names]
        run = CapturedGraph(self.item.program).run(values, seed=len(self.fed), float64=False)
        return {name: value.numpy() for name, value in zip(self.item.output_names, run.own, strict=True)}


@pytest.mark.slow
def test_random_outputs_are_compared_by_distribution() -> None:
    def function(x: torch.Tensor) -> Any:
        noisy = torch.nn.functional.dropout(x + 2, 0.3, True)
        return noisy, torch.rand_like(x) * x, torch.nn.functional.dropout(x, 0.3, False)

    item = captured(Function(function), (torch.randn(8, 8),))
    echo = Echo(item)
    found = verify(CapturedReference(item), echo, engine="echo")
    assert [comparison.status for comparison in found.comparisons] == ["random", "random", "equal"]
    faults = {
        "out_0": lambda r: {**r, "out_0": r["out_0"] * np.float32(0.7)},
        "out_1": lambda r: {**r, "out_1": np.roll(r["out_1"], 1, axis=0)},
    }
    for output, change in faults.items():
        found = verify(CapturedReference(item), Altered(Echo(item), change), engine="echo")
        wrong = [comparison for comparison in found.comparisons if not comparison.passed]
        assert [comparison.output for comparison in wrong] == [output]
        assert "differ" in wrong[0].detail
    frozen = Echo(item).run(echo.fed[0])
    found = verify(
        CapturedReference(item), Altered(Echo(item), lambda r: {**r, "out_0": frozen["out_0"]}), engine="echo"
    )
    assert found.comparisons[0].detail == "the engine draws the same numbers in every run; PyTorch draws new ones"


def test_own_inputs_are_used_and_checked() -> None:
    item = captured(Function(lambda x: x * 2), (torch.randn(4, 3),), ({0: Dim("n")},))
    echo = Echo(item)
    name = item.input_names[0]
    given = [{name: np.ones((7, 3), np.float32)}, {name: np.zeros((2, 3), np.float32)}]
    found = verify(CapturedReference(item), echo, engine="echo", options=VerifyOptions(inputs=given))
    assert found.passed
    assert [list(case.sizes.values()) for case in found.cases] == [[7], [2]]
    assert np.array_equal(echo.fed[0][name], given[0][name])
    for wrong, message in [
        ({}, f"{name!r} is missing"),
        ({name: given[0][name], "z": given[0][name]}, "there is no input 'z'"),
        ({name: np.ones((7, 3))}, "takes dtype float32, but got float64"),
        ({name: np.ones((7, 4), np.float32)}, "but got [7, 4]"),
    ]:
        with pytest.raises(InputError) as error:
            verify(CapturedReference(item), echo, engine="echo", options=VerifyOptions(inputs=[wrong]))
        assert message in error.value.message


def test_tolerances_replace_the_budget() -> None:
    item = captured(Function(lambda x: x * 2), (torch.randn(4, 3),))
    near = Altered(Echo(item), lambda results: {"out_0": results["out_0"] * np.float32(1.001)})
    assert verify(CapturedReference(item), near, engine="echo").verdict == "failed"
    assert verify(CapturedReference(item), near, engine="echo", options=VerifyOptions(rtol=1e-2)).passed
    assert verify(CapturedReference(item), near, engine="echo", options=VerifyOptions(rtol=1e-4)).verdict == "failed"
    assert verify(CapturedReference(item), near, engine="echo", options=VerifyOptions(atol=0.1)).passed
    with pytest.raises(InputError, match="rtol=-1 is not valid: a tolerance is a number of at least 0"):
        verify(CapturedReference(item), near, engine="echo", options=VerifyOptions(rtol=-1))


def test_inputs_are_fresh_and_the_seed_decides_them() -> None:
    item = captured(Function(lambda x, y: x + y), (torch.randn(4, 3), torch.randn(4, 3)))
    engines = [Echo(item) for _ in range(3)]
    for echo, seed in zip(engines, (DEFAULT_SEED, DEFAULT_SEED, 7), strict=True):
        verify(CapturedReference(item), echo, engine="echo", options=VerifyOptions(seed=seed))
    first, same, other = (list(echo.fed[0].values()) for echo in engines)
    assert np.array_equal(first[0], same[0])
    assert not np.array_equal(first[0], other[0])
    assert not np.isin(first[0], item.args[0].numpy()).any()
    assert not np.array_equal(first[0], first[1])


def test_state_of_module_and_program_is_left_alone() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return self.linear(x) * self.count

    module = Counter()
    item = captured(module, (torch.randn(4, 3),))
    before = {name: value.clone() for name, value in item.program.state_dict.items()}
    module.train()
    generator = torch.get_rng_state()
    found = verify(CapturedReference(item), Echo(item), engine="echo")
    assert found.passed, found.summary()
    assert module.training
    assert float(module.count) == 0
    assert torch.equal(generator, torch.get_rng_state())
    for name, value in item.program.state_dict.items():
        assert torch.equal(value, before[name])


def test_result_survives_json() -> None:
    item = captured(Function(lambda x: x * 2), (torch.randn(4, 3),))
    wrong = Altered(Echo(item), lambda results: {"out_0": results["out_0"] * np.float32(np.nan)})
    found = verify(CapturedReference(item), wrong, engine="echo")
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert Verification.from_dict(json.loads(text)) == found
    assert found.comparisons[0].engine_error == np.inf
    assert "are finite on one side only" in found.summary()
    assert set(found.seconds) == {"runs", "overhead"}
    assert not Comparison("y", "c", "shape").passed
