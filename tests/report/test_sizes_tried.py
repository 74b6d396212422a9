"""The sizes of each dynamic dimension that a verification covers."""

from __future__ import annotations

from opbridge.report.verification import sizes_tried


def test_only_cases_that_passed_count() -> None:
    cases = [
        {"sizes": {"batch": 2, "height": 4}, "verdict": "passed"},
        {"sizes": {"batch": 1, "height": 4}, "verdict": "passed"},
        {"sizes": {"batch": 2, "height": 5}, "verdict": "failed"},
        {"sizes": {}, "verdict": "passed"},
    ]
    assert sizes_tried(cases) == "batch 1, 2; height 4"
    assert sizes_tried([]) == ""
