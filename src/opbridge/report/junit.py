"""JUnit XML: a bundle's verification, as a suite per engine and a test per set of inputs and output; and plain suites.

Jenkins, GitLab and GitHub Actions read this structure: ``testsuites`` contains ``testsuite`` elements with counts, and
each ``testcase`` may contain ``failure``, ``error`` or ``skipped``.
"""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opbridge.proof.verify.verification import NOT_VERIFIED, status_words
from opbridge.report.page_words import EngineResult, engine_results, passes, sizes
from opbridge.report.tables import number

__all__ = ["JunitTest", "render_junit", "render_suites"]

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow, escaped or not."""


def render_junit(data: Mapping[str, Any]) -> str:
    """The verification of ``Bundle.to_dict()``; an unverified bundle becomes one skipped test."""
    verification = data.get("verification")
    name = str(data["manifest"].get("entry") or data["path"])
    claimed = " (claimed, not checked here)" if data.get("claim") else ""
    root = ET.Element("testsuites", {"name": _text(f"opbridge: {name}{claimed}")})
    if verification is None:
        never = EngineResult("opbridge", NOT_VERIFIED, "The bundle has not been verified yet.", 0, 0, None)
        _suite(root, never, {"cases": [], "comparisons": []}, several=False, name=name)
    else:
        results = engine_results(verification)
        for result in results:
            _suite(root, result, verification, several=len(results) > 1, name=name)
        seconds = sum(float(value) for value in verification.get("seconds", {}).values())
        root.set("time", f"{seconds:.3f}")
    return _document(root)


@dataclasses.dataclass(frozen=True)
class JunitTest:
    """A test of a suite.

    Attributes:
        name: Its name.
        result: What it is, unless it passed.
        message: Why.
    """

    name: str
    result: Literal["", "failure", "error", "skipped"] = ""
    message: str = ""


def render_suites(title: str, suites: Mapping[str, Sequence[JunitTest]]) -> str:
    """Suites of tests by name, under a title."""
    root = ET.Element("testsuites", {"name": _text(title)})
    for name, tests in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": _text(name)})
        for test in tests:
            element = _test(suite, name, test.name)
            if test.result:
                ET.SubElement(element, test.result, {"message": _text(test.message)})
        _count(suite)
    return _document(root)


def _document(root: ET.Element) -> str:
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(
    root: ET.Element, result: EngineResult, verification: Mapping[str, Any], *, several: bool, name: str
) -> None:
    suite = ET.SubElement(root, "testsuite", {"name": _text(result.engine)})
    label = result.engine if several else ""
    cases = [case for case in verification["cases"] if not several or case.get("engine", "") == label]
    for case in cases:
        rows = [
            row
            for row in verification["comparisons"]
            if row["case"] == case["name"] and (not several or row.get("engine", "") == label)
        ]
        _case(suite, f"{name}.{result.engine}", case, rows)
    if not cases:
        test = _test(suite, f"{name}.{result.engine}", "verification")
        kind = "failure" if result.verdict == "failed" else "error" if result.verdict == "error" else "skipped"
        ET.SubElement(test, kind, {"message": _text(result.reason or result.verdict)})
    _count(suite)


def _count(suite: ET.Element) -> None:
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(suite.findall("testcase"))))
    for count, kind in counts.items():
        suite.set(count, str(len(suite.findall(f"testcase/{kind}"))))


def _case(suite: ET.Element, owner: str, case: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    title = f"{case['name']} ({sizes(case)})" if case["sizes"] else case["name"]
    if case["eager_matches"] is not None:
        test = _test(suite, owner, f"{title}: captured graph")
        if case["eager_matches"] is False:
            message = "The captured graph and the module give different results."
            ET.SubElement(test, "failure", {"message": message, "type": "capture"})
    if case["error"]:
        test = _test(suite, owner, f"{title}: run")
        kind = "error" if case["verdict"] == "error" else "failure"
        ET.SubElement(test, kind, {"message": _text(case["error"]), "type": case["verdict"]})
    for row in rows:
        test = _test(suite, owner, f"{title}: {row['output']}")
        numbers = (
            f"max error {number(row['engine_error'])}, PyTorch's error {number(row['torch_error'])}, "
            f"tolerance {number(row['budget'])} units; max absolute difference {number(row['max_abs'])}"
        )
        if passes(row["status"]):
            ET.SubElement(test, "system-out").text = _text(f"{status_words(row['status'])}: {numbers}")
        else:
            failure = ET.SubElement(test, "failure", {"type": status_words(row["status"])})
            failure.set("message", _text(row["detail"] or status_words(row["status"])))
            failure.text = _text(numbers)


def _test(suite: ET.Element, owner: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": _text(owner), "name": _text(name)})


def _text(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", str(text))
