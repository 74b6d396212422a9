"""A diagnosis as tables: the operators with their links, then each finding with its fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding

from opbridge.report.rungs import NOTABLE, operators_view
from opbridge.report.tables import paragraph, place, plural
from opbridge.report.words import fixed_by

__all__ = ["diagnosis_view"]

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def diagnosis_view(data: Mapping[str, Any], *, verbose: bool = False) -> Iterable[RenderableType]:
    """Render ``Diagnosis.to_dict()``.

    Args:
        data: The data.
        verbose: Whether to list the native operators, and the findings that need no action, too.
    """
    listed = [one for one in data["operators"] if verbose or one["rung"] != "native" or not all(one["links"].values())]
    if listed:
        yield operators_view(listed)
    for operator in listed if verbose else ():
        if operator.get("detail"):
            yield paragraph(f"{operator['target']}: {operator['detail']}", "dim")
    hidden = len(data["operators"]) - len(listed)
    if hidden:
        yield paragraph(f"{plural(hidden, 'native operator')} (-v lists them)", "dim")
    for finding in data["findings"]:
        needs_action = finding["severity"] != "info" and not finding["mended"]
        if finding["code"] in NOTABLE and not (verbose or needs_action):
            yield paragraph(finding["message"], "dim")
    if data["operators"]:
        yield ""
    for finding in data["findings"]:
        if verbose or not (finding["mended"] or finding["severity"] == "info"):
            yield _finding(finding)
            yield ""
    engines = ", ".join(name if "==" in name else f"{name} {version}" for name, version in data["engines"].items())
    reason = f" ({data['opset_reason']})" if verbose and data.get("opset_reason") else ""
    opset = f"opset {data['opset']}{reason}, " if data["opset"] else ""
    broken = sum(not finding["mended"] and finding["severity"] == "error" for finding in data["findings"])
    verdict = "all operators are supported" if data["ok"] else f"{plural(broken, 'problem')} that opbridge can't fix"
    count = f"{plural(len(data['operators']), 'distinct operator')}, " if data["operators"] else "not captured, "
    yield paragraph(f"{count}{opset}{engines}: {data['seconds']:.1f} s")
    yield paragraph(verdict[0].upper() + verdict[1:] + ".", "bold green" if data["ok"] else "bold red")


def _finding(finding: Mapping[str, Any]) -> RenderableType:
    state = fixed_by(finding["rung"]) if finding["mended"] and finding.get("rung") else ""
    title = f"{finding['severity']} {finding['code']}: {finding['target']}".rstrip(": ")
    lines: list[RenderableType] = [paragraph(title, _STYLES.get(finding["severity"], "bold"))]
    notes = [f"at {place(finding['sources'])}" if finding["sources"] else "", state]
    fix = f"fix: {finding['fix']}" if finding["fix"] and not finding["mended"] else ""
    body = [", ".join(filter(None, notes)), finding["message"], fix]
    lines += [Padding(paragraph(text), (0, 0, 0, 2), expand=False) for text in body if text]
    return Group(*lines)
