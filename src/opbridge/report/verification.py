"""A verification as tables: the error of each output, the mismatches and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from opbridge.capture.assumption import verdict_text
from opbridge.proof.verify.special_values import SpecialValues
from opbridge.proof.verify.trace import Divergence
from opbridge.proof.verify.verification import (
    error_words,
    share_of_tolerance,
    status_words,
    tolerance_text,
)
from opbridge.report.page_words import EngineResult, engine_results
from opbridge.report.tables import number, paragraph, plural, table
from opbridge.report.words import unit_words

__all__ = ["verification_view"]

_PASSING = ("equal", "random", "decision", "within budget")
"""The passing statuses, from the best to the worst."""

_TONES = {"good": "green", "bad": "red", "open": "yellow"}


def verification_view(data: Mapping[str, Any], *, verbose: bool = False) -> Iterable[RenderableType]:
    """Render ``Verification.to_dict()``.

    Args:
        data: The data.
        verbose: Whether to show the errors and the tolerance themselves, and notes on the cases.
    """
    reference = data.get("reference", "PyTorch")
    outputs = list(dict.fromkeys(comparison["output"] for comparison in data["comparisons"]))
    if outputs:
        if verbose:
            yield _statistics(data["comparisons"], outputs, "PyTorch" if reference == "PyTorch" else "the original")
            if any(comparison["budget"] for comparison in data["comparisons"]):
                yield paragraph(unit_words(data), "dim")
        else:
            yield _outputs(data["comparisons"], outputs)
        yield ""
    yield from _mismatches(data["comparisons"], verbose)
    yield from _divergences(data.get("divergences", ()), verbose)
    yield from _ill_conditioned(data["comparisons"])
    several = len(data.get("engines", ())) > 1
    yield from _cases(data["cases"], None if several else data["error"])
    yield from _special_values(data.get("special_values", ()))
    if sizes := sizes_tried(data["cases"]):
        yield paragraph(f"sizes verified: {sizes}", "dim")
    if outputs and reference != "PyTorch":
        yield paragraph(f"compared with {reference}", "dim")
    if data.get("tolerance"):
        given = tolerance_text(data["tolerance"])
        yield paragraph(f"compared with the given tolerance ({given}) instead of the computed one", "dim")
    if data.get("resumed"):
        yield paragraph(f"{plural(data['resumed'], 'case')} had passed before the verification was interrupted", "dim")
    for assumption in data.get("assumptions", ()):
        yield paragraph(f"assumed: {assumption}", "yellow")
    for result in engine_results(data) if several else ():
        yield paragraph(_engine(result), _TONES[result.tone])
    verdict = verdict_text(data["verdict"], data.get("assumptions", ()))
    label = "verification" if several else data["engine"]
    yield paragraph(
        f"{label}: {verdict} ({plural(len(data['cases']), 'case')}, seed {data['seed']}, "
        f"{sum(float(value) for value in data['seconds'].values()):.1f} s)",
        "bold red" if data["verdict"] != "passed" else "bold yellow" if data.get("assumptions") else "bold green",
    )


def _mismatches(comparisons: Sequence[Mapping[str, Any]], verbose: bool) -> Iterable[RenderableType]:
    """The worst case of each output that does not match, or all of them."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in comparisons:
        if item["status"] not in _PASSING:
            key = (item["output"], item.get("engine", ""), item["status"], item["case"] if verbose else "")
            groups.setdefault(key, []).append(item)
    for found in groups.values():
        worst = max(found, key=_badness)
        among = f", the worst of {len(found)} cases" if len(found) > 1 else ""
        detail = f": {worst['detail']}" if worst["detail"] else ""
        place = f"{worst['output']} ({_with_engine(worst, worst['case'])}{among})"
        yield paragraph(f"{place}: {status_words(worst['status'])}{detail}", "red")


def _divergences(divergences: Sequence[Mapping[str, Any]], verbose: bool) -> Iterable[RenderableType]:
    """Each first mismatching node with the numbers of the first case that it explains, or of all cases."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in divergences:
        node = (item["first"] or {}).get("node", "")
        key = (item.get("engine", ""), item["verdict"], node, item["case"] if verbose or not node else "")
        groups.setdefault(key, []).append(item)
    for found in groups.values():
        cases = ", ".join(item["case"] for item in found)
        yield paragraph(f"{_with_engine(found[0], cases)}: {Divergence.from_dict(found[0])}", "red")


def _engine(result: EngineResult) -> str:
    """The verdict on one of several engines: ``"openvino: failed (1 of 3 cases)"``, ``"tvm: error (1 case): ..."``."""
    of = f"{result.failed} of " if result.verdict == "failed" and result.failed else ""
    cases = f" ({of}{plural(result.cases, 'case')})" if result.cases else ""
    return f"{result.engine}: {result.verdict}{cases}{f': {result.reason}' if result.reason else ''}"


def _with_engine(item: Mapping[str, Any], case: str) -> str:
    """The name of a case, after the engine's if several were verified."""
    return f"{item['engine']}, {case}" if item.get("engine") else case


def _outputs(comparisons: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> RenderableType:
    result = table("output", "cases", "error", "result", right=("cases",))
    for output in outputs:
        rows = [comparison for comparison in comparisons if comparison["output"] == output]
        worst = max(rows, key=_badness)
        error = error_words(worst["ratio"]) if worst["budget"] and worst["status"] != "equal" else ""
        style = "" if worst["status"] in _PASSING else "bold red"
        result.add_row(output, str(len(rows)), error, status_words(worst["status"]), style=style)
    return result


def _statistics(comparisons: Sequence[Mapping[str, Any]], outputs: Sequence[str], reference: str) -> RenderableType:
    headings = ("output", "cases", "max error", f"{reference}'s error", "tolerance", "used", "result")
    result = table(*headings, right=headings[1:6])
    for output in outputs:
        rows = [comparison for comparison in comparisons if comparison["output"] == output]
        worst = max(rows, key=_badness)
        errors = [number(worst[key]) for key in ("engine_error", "torch_error")]
        limit = [number(worst["budget"]), share_of_tolerance(worst["ratio"])] if worst["budget"] else ["", ""]
        style = "" if worst["status"] in _PASSING else "bold red"
        result.add_row(output, str(len(rows)), *errors, *limit, status_words(worst["status"]), style=style)
    return result


def sizes_tried(cases: Sequence[Mapping[str, Any]]) -> str:
    """The sizes of each dynamic dimension in the cases that passed: ``"batch 1, 2, 3; height 15, 16"``."""
    found: dict[str, set[int]] = {}
    for case in cases:
        for name, size in case["sizes"].items() if case["verdict"] == "passed" else ():
            found.setdefault(name, set()).add(size)
    return "; ".join(f"{name} {', '.join(map(str, sorted(sizes)))}" for name, sizes in found.items())


def _badness(comparison: Mapping[str, Any]) -> tuple[int, float]:
    status = comparison["status"]
    rank = _PASSING.index(status) if status in _PASSING else len(_PASSING)
    ratio = float(comparison["ratio"])
    return rank, ratio if ratio == ratio else float("inf")


def _ill_conditioned(comparisons: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    """The worst case of each passing output for which PyTorch's own result has lost most of its digits."""
    found = [item for item in comparisons if item.get("ill_conditioned") and item["status"] in _PASSING]
    for output in dict.fromkeys(item["output"] for item in found):
        worst = max(
            (item for item in found if item["output"] == output), key=lambda item: float(item["torch_relative_error"])
        )
        yield paragraph(f"{output} ({worst['case']}): {worst['detail']}", "dim")


def _special_values(results: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    for data in results:
        found = SpecialValues.from_dict(data)
        style = "yellow" if not found.passed else "dim"
        engine = f" in {found.engine}" if found.engine else ""
        for line in f"special values{engine}, {found}".splitlines():
            yield paragraph(line, style)


def _cases(cases: Sequence[Mapping[str, Any]], error: str | None) -> Iterable[RenderableType]:
    shown = set()
    for case in cases:
        sizes = ", ".join(f"{name}={size}" for name, size in case["sizes"].items())
        name = _with_engine(case, case["name"]) + (f" ({sizes})" if sizes else "")
        if case["error"]:
            shown.add(case["error"])
            yield paragraph(f"{name}: {case['error']}", "red")
        if case["eager_matches"] is False:
            yield paragraph(f"{name}: the captured graph and the module give different results", "red")
        for note in case["notes"]:
            yield paragraph(f"{name}: {note}", "dim")
        if case.get("failing_input"):
            yield paragraph(f"{name}: also fails on the small input in {case['failing_input']}", "red")
    if error and error not in shown:
        yield paragraph(error, "red")
