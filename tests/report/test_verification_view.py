"""A verification as text: the verdict of each engine, and the sizes of each dynamic dimension that were covered."""

from __future__ import annotations

import dataclasses
import io

import report_bundles as made
import rich.console

from opbridge.proof.verify.joined import joined
from opbridge.proof.verify.verification import CaseResult, Verification
from opbridge.report.verification import sizes_tried, verification_view


def shown(verification: Verification) -> list[str]:
    console = rich.console.Console(width=300, file=io.StringIO())
    console.print(*verification_view(verification.to_dict()), sep="\n")
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_each_of_five_engines_has_its_verdict() -> None:
    crashed = Verification(
        "tvm", "error", (CaseResult("sizes 2", {}, "error", error="tvm crashed."),), (), {}, 1, error="tvm crashed."
    )
    engines = [made.passed(), made.passed("openvino"), made.failed("ncnn"), crashed, made.not_run()]
    lines = shown(joined(engines))
    assert lines[-6:-1] == [
        "onnxruntime: passed (3 cases)",
        "openvino: passed (3 cases)",
        "ncnn: failed (1 of 3 cases)",
        "tvm: error (1 case): tvm crashed.",
        f"tensorrt_rtx: built, not run: {made.not_run().error}",
    ]
    assert lines[-1].startswith("verification: failed (10 cases, seed ")
    assert "tvm, sizes 2: tvm crashed." in lines
    (mismatch,) = [line for line in lines if line.startswith("logits (")]
    assert mismatch.startswith("logits (ncnn, sizes 2): mismatch: ")
    (first,) = [line for line in lines if "first mismatching node" in line]
    assert first.startswith("ncnn, sizes 2: ")


def test_one_engine_has_one_verdict() -> None:
    lines = shown(dataclasses.replace(made.failed(), error="off"))
    assert "off" in lines
    assert lines[-1].startswith("onnxruntime: failed (3 cases, seed ")
    assert not [line for line in lines[:-1] if line.startswith("onnxruntime")]


def test_only_cases_that_passed_count() -> None:
    cases = [
        {"sizes": {"batch": 2, "height": 4}, "verdict": "passed"},
        {"sizes": {"batch": 1, "height": 4}, "verdict": "passed"},
        {"sizes": {"batch": 2, "height": 5}, "verdict": "failed"},
        {"sizes": {}, "verdict": "passed"},
    ]
    assert sizes_tried(cases) == "batch 1, 2; height 4"
    assert sizes_tried([]) == ""
