"""The results of checking a file's operators, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from opbridge.report.tables import paragraph, plural, table

__all__ = ["operator_check_view"]

_STYLES = {"passed": "", "failed": "bold red", "not applicable": "dim", "not run": "yellow"}


def operator_check_view(data: Mapping[str, Any], *, verbose: bool = False) -> Iterable[RenderableType]:
    """Render ``OperatorCheck.to_dict()``: a row per check, and one for each sample on which it did not pass.

    Args:
        data: The results.
        verbose: Whether each sample that passed has a row too.
    """
    rows = table("operator", "check", "sample", "result", "detail")
    for result in data["results"] if verbose else _together(data["results"]):
        keys = ("target", "check", "sample", "status", "detail")
        rows.add_row(*(result[key] for key in keys), style=_STYLES[result["status"]])
    yield rows
    yield ""
    counts = ", ".join(f"{count} {status}" for status, count in data["counts"].items() if count)
    verdict = "passed" if data["passed"] else "failed"
    yield paragraph(f"{data['file']}: {verdict} ({counts})", "bold green" if data["passed"] else "bold red")


def _together(results: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """The results, those of one check on several samples as one if the samples passed, or have the same detail."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for result in results:
        same = "" if result["status"] == "passed" else result["detail"]
        groups.setdefault((result["target"], result["check"], result["status"], same), []).append(result)
    # All rows of a check are together, in the order of the checks.
    order = {key[:2]: index for index, key in reversed([*enumerate(groups)])}
    for key in sorted(groups, key=lambda key: order[key[:2]]):
        group = groups[key]
        shown = {} if len(group) == 1 else {"sample": plural(len(group), "sample"), "detail": key[3]}
        yield {**group[0], **shown}
