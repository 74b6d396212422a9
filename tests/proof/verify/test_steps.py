"""Runs in a row of a model with state: a session that misuses the state fails in the step in which it does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from opbridge.capture.stateful import capture_with_state  # noqa: E402
from opbridge.proof.verify.options import VerifyOptions  # noqa: E402
from opbridge.proof.verify.reference_captured import CapturedReference  # noqa: E402
from opbridge.proof.verify.steps import STEPS, with_steps  # noqa: E402
from opbridge.proof.verify.verify import verify  # noqa: E402


class Smoothed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x
        return x - self.mean


class Session:
    """Computes what the module computes, except in the ways that ``fault`` names."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.runs = 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.runs += 1
        x, mean = feeds["x"], feeds["state_mean"]
        if self.fault == "keeps its own state" and self.runs > 1:
            mean = self.mean
        self.mean = (np.float32(0.9) * mean + np.float32(0.1) * x).astype(np.float32)
        given = mean if self.fault == "returns the old state" else self.mean
        wrong = self.fault == "ignores a state that is not zero" and mean.any()
        return {"output": x - (np.float32(0.1) * x if wrong else self.mean), "next_state_mean": given}


@pytest.mark.quick("-failing0", every=3)
@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        ("", []),
        ("keeps its own state", []),  # What it was given is what it returned.
        ("returns the old state", [1, 2, 3, 4]),
        ("ignores a state that is not zero", [2, 3, 4]),
    ],
)
def test_a_fault_shows_in_the_step_that_has_it(fault: str, failing: list[int]) -> None:
    captured = capture_with_state(Smoothed(), (torch.ones(3),))
    reference = CapturedReference(captured)
    options = VerifyOptions()
    single = verify(reference, Session(""), engine="test", options=options)
    found = with_steps(single, reference, captured, Session(fault), options)
    steps = [case for case in found.cases if case.name.startswith("step")]
    assert len(steps) == STEPS
    assert [number for number, case in enumerate(steps, 1) if case.verdict != "passed"] == failing
    assert all(case.eager_matches for case in steps)
    assert found.verdict == ("failed" if failing else "passed")
