"""Situations of users, each modelled on a public report; the table is in the files of this folder, by topic.

The list was frozen before any of it was run. What is expected of opbridge is in ``expected.py``, which changes with it.
"""

from __future__ import annotations

from side_by_side import Situation

from situations import (
    attention,
    audio,
    control_flow,
    detection,
    dtypes,
    dynamic_sizes,
    interfaces,
    operators,
    quantization,
    recurrent,
    state,
)
from situations.report import Report

__all__ = ["REPORTS", "Report", "situation"]

REPORTS: dict[str, Report] = {
    report.name: report
    for module in (
        dynamic_sizes,
        recurrent,
        operators,
        control_flow,
        attention,
        detection,
        audio,
        quantization,
        dtypes,
        interfaces,
        state,
    )
    for report in module.REPORTS
}


def situation(name: str) -> Situation:
    """The situation of a report, made anew."""
    return REPORTS[name].make()
