"""The situations of users come out as expected, compared without opbridge's verifier.

The quick ones are exported in this process, a sample of the others in a process of their own. ``benchmarks/reports.py``
runs all of them, and exits with 1 where one does not come out as expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import side_by_side_child as child
from expected import EXPECTED, expected_verdict
from fixes import FIXES
from side_by_side import Server
from situations import REPORTS

pytestmark = [pytest.mark.newest, pytest.mark.one_worker]

QUICK = (
    "bucketize",
    "scatter_reduce with include_self=False",
    "elu, expm1 and glu",
    "min.other, and clamp with a tensor",
    "view(dtype): the exponent of a number",
    "index_copy_ into an array of a fixed size",
    "a branch on a size",
    "shapes for some of the arguments only",
)


SAMPLE = [name for name in REPORTS if name not in QUICK][::28]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(path=[Path(__file__).parent]) as server:
        yield server


@pytest.mark.quick("bucketize", "scatter_reduce", "min.other", "shapes for", every=3)
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_report(name, tmp_path):
    row = child.main(f"situations:situation#{name}", "opbridge", tmp_path)
    assert row.verdict == expected_verdict(name), row


@pytest.mark.sweep
@pytest.mark.parametrize("name", SAMPLE)
def test_a_report(name, server):
    row = server.compare(f"situations:situation#{name}", "opbridge", name=name)
    assert row.verdict == expected_verdict(name), row
    if row.verdict == "refused":
        assert row.fix


@pytest.mark.parametrize("name", ["a jagged tensor as the input"])
def test_a_printed_fix_works(name, tmp_path):
    assert child.main(f"fixes:situation#{name}", "opbridge", tmp_path).verdict == "right"


def test_the_list():
    assert len(REPORTS) >= 70
    assert not set(EXPECTED) - set(REPORTS)
    assert not set(QUICK) - set(REPORTS)
    assert not set(FIXES) - set(EXPECTED)
    assert all(expected.verdict != "right" and expected.reason for expected in EXPECTED.values())
    links = [report.link for report in REPORTS.values()]
    assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link) for link in links)
