"""Inputs are looked for that take every branch and run every loop; what no input leads to is named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from opbridge.capture.capture import Captured, capture
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.verification import Verification
from opbridge.proof.verify.verify import verify


class Program:
    """The captured program as an engine; it is wrong where ``wrong`` says so."""

    def __init__(self, captured: Captured, wrong: Callable[[dict[str, Any]], bool] = lambda feeds: False) -> None:
        self.captured, self.wrong, self.module = captured, wrong, captured.program.module()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = {name: torch.from_numpy(np.array(value)) for name, value in feeds.items()}
        result = self.module(*tensors.values()) + (1 if self.wrong(tensors) else 0)
        return {self.captured.output_names[0]: result.numpy()}


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 100:
        return x * 2
    elif x.max() < -1:
        return x.abs()
    return x - 1


def repeats(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    for _ in range(int(n)):
        x = torch.where(x > 0.5, x * 0.5, x + 1)
    return x


def inner(x: torch.Tensor) -> torch.Tensor:
    if x.max() > 1:
        if x.min() < -1:
            return x * 3
        return x * 2
    return x


def on_a_size(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 20 else x - 1


def on_nearby_sizes(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] % 2 == 0:
        return x * 2
    return x * 3 if x.shape[0] % 3 == 0 else x - 1


def rare(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x == 7.5).all() else x - 1


def unreachable(x: torch.Tensor) -> torch.Tensor:
    if x.abs().sum() < -5:
        return x * 2 if x.max() > 0 else x * 3
    return x


X = torch.linspace(0.1, 0.9, 6)
ARGUMENTS: dict[Any, tuple[torch.Tensor, ...]] = {
    branches: (X,),
    repeats: (X, torch.tensor(3)),
    inner: (X,),
    on_a_size: (X,),
    on_nearby_sizes: (X,),
    rare: (X,),
    unreachable: (X,),
}
CASES: dict[str, tuple[Any, Callable[[dict[str, Any]], bool]]] = {
    "then": (branches, lambda feeds: feeds["x"].sum() > 100),
    "elif": (branches, lambda feeds: feeds["x"].max() < -1),
    "no iteration": (repeats, lambda feeds: feeds["n"] == 0),
    "one iteration": (repeats, lambda feeds: feeds["n"] == 1),
    "a number of the model": (rare, lambda feeds: (feeds["x"] == 7.5).all()),
    "size": (on_a_size, lambda feeds: feeds["x"].shape[0] > 20),
    "nearby size": (on_nearby_sizes, lambda feeds: feeds["x"].shape[0] % 6 == 3),
    "inner": (inner, lambda feeds: feeds["x"].max() > 1 and feeds["x"].min() >= -1),
}


@functools.cache
def program(model: Any) -> Captured:
    is_dynamic = model in (on_a_size, on_nearby_sizes)
    return capture(model, ARGUMENTS[model], dynamic_shapes=({0: torch.export.Dim("n")},) if is_dynamic else None)


def verified(model: Any, wrong: Any = lambda feeds: False, **options: Any) -> Verification:
    captured = program(model)
    return verify(
        CapturedReference(captured), Program(captured, wrong), engine="program", options=VerifyOptions(**options)
    )


def notes_of(found: Verification) -> list[str]:
    return [note for case in found.cases for note in case.notes if note.startswith("not verified")]


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("name", CASES)
def test_an_error_on_a_path_that_the_example_does_not_take_is_found(name: str) -> None:
    found = verified(*CASES[name])
    assert found.verdict == "failed", found.summary()
    assert found.cases[0].verdict == "passed"


@pytest.mark.quick("branches", every=3)
@pytest.mark.parametrize("model", [branches, repeats])
def test_every_path_is_taken(model: Any) -> None:
    found = verified(model)
    assert found.passed, found.summary()
    assert len(found.cases) == 3
    assert notes_of(found) == []


@pytest.mark.slow
def test_what_no_input_leads_to_is_named_once() -> None:
    found = verified(unreachable)
    assert found.passed
    (note,) = notes_of(found)
    line = unreachable.__code__.co_firstlineno + 1
    assert note.startswith("not verified: the branch for True of the condition at ")
    assert note.endswith(f"test_paths.py:{line}; give inputs that lead there (--inputs)")


@pytest.mark.slow
def test_given_inputs_are_the_only_ones_and_what_they_leave_out_is_named() -> None:
    found = verified(branches, inputs={"large": {"x": np.full(6, 50, np.float32)}})
    assert [case.name for case in found.cases] == ["large"]
    (note,) = notes_of(found)
    assert "the branch for False" in note
