"""An engine's output against an original ONNX model's: a doubtful reference does not help the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbridge.proof.verify.judgement import Judgement
from opbridge.proof.verify.original_runs import paired
from opbridge.proof.verify.reference import Run

RANDOM = np.random.default_rng(0)
OWN = RANDOM.standard_normal((50, 40)).astype(np.float32)
EXACT = OWN.astype(np.float64) * (1 + 3e-8 * RANDOM.standard_normal(OWN.shape))
ELSEWHERE = EXACT * (1 + 0.3 * RANDOM.standard_normal(OWN.shape))
ELSEWHERE_IN_PART = np.concatenate([EXACT[:3] * 1.5, EXACT[3:]])


class Stub:
    """A model whose result moves by a rounding error when its inputs do."""

    name = "the original"

    def __init__(self, float64: np.ndarray) -> None:
        self.float64 = float64

    def run(self, feeds: Any, *, weights: Any = None) -> Run:
        moved = OWN if feeds["x"] is OWN else OWN * (1 + 1e-7 * RANDOM.standard_normal(OWN.shape))
        return paired({"y": moved.astype(np.float32)}, {"y": self.float64}, frozenset(), 1)

    def draw(self, feeds: Any, number: int) -> Any:
        raise NotImplementedError

    def near_ties(self, feeds: Any, failing: Any) -> None:
        return None


def status(float64: np.ndarray, result: np.ndarray) -> str:
    stub, feeds = Stub(float64), {"x": OWN}
    judgement = Judgement(stub, "case", feeds, stub.run(feeds), None, 0)
    return judgement.compare({"y": result.astype(np.float32)}, dict)[0].status


@pytest.mark.parametrize("float64", [EXACT, ELSEWHERE, ELSEWHERE_IN_PART], ids=["exact", "elsewhere", "in part"])
def test_a_reference_that_computes_something_else_allows_the_engine_nothing(float64: np.ndarray) -> None:
    assert status(float64, OWN * (1 + 2e-7)) == "within budget"
    assert status(float64, OWN * 1.01) == "differs"
    assert status(float64, np.concatenate([OWN[:10], OWN[10:13] * 1.4, OWN[13:]])) == "differs"
