"""An engine's output against an original ONNX model's: a doubtful reference does not help the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbridge.proof.verify.onnx_judgement import ModelJudgement
from opbridge.proof.verify.onnx_reference import OriginalRun

RANDOM = np.random.default_rng(0)
OWN = RANDOM.standard_normal((50, 40)).astype(np.float32)
EXACT = OWN.astype(np.float64) * (1 + 3e-8 * RANDOM.standard_normal(OWN.shape))
ELSEWHERE = EXACT * (1 + 0.3 * RANDOM.standard_normal(OWN.shape))
ELSEWHERE_IN_PART = np.concatenate([EXACT[:3] * 1.5, EXACT[3:]])


def status(wide: np.ndarray, result: np.ndarray) -> str:
    def nearby(feeds: Any) -> OriginalRun:
        moved = OWN * (1 + 1e-7 * RANDOM.standard_normal(OWN.shape))
        return OriginalRun({"y": moved.astype(np.float32)}, {"y": wide})

    run = OriginalRun({"y": OWN}, {"y": wide})
    judgement = ModelJudgement("case", {"x": OWN}, run, nearby, frozenset(), 1, None, 0)
    return judgement.compare({"y": result.astype(np.float32)}, dict)[0].status


@pytest.mark.parametrize("wide", [EXACT, ELSEWHERE, ELSEWHERE_IN_PART], ids=["exact", "elsewhere", "in part"])
def test_a_reference_that_computes_something_else_allows_the_engine_nothing(wide: np.ndarray) -> None:
    assert status(wide, OWN * (1 + 2e-7)) == "within budget"
    assert status(wide, OWN * 1.01) == "differs"
    assert status(wide, np.concatenate([OWN[:10], OWN[10:13] * 1.4, OWN[13:]])) == "differs"
