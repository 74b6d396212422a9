"""A bundle as tables: the rung of each operator, the verification, and the path of the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from opbridge.capture.assumption import Assumption
from opbridge.report.tables import paragraph, place, plural, table, unbroken
from opbridge.report.verification import verification_view

__all__ = ["bundle_view"]


def bundle_view(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Render ``Bundle.to_dict()``."""
    manifest = data["manifest"]
    yield _operators(data)
    yield ""
    yield from _findings([finding for finding in data["sources"].get("findings", []) if finding["severity"] != "info"])
    if manifest.get("was_training"):
        yield paragraph("exported in evaluation mode; the model was passed in training mode")
    for item in manifest.get("state_buffers", ()):
        yield paragraph(f"state: {item['buffer']} is the input {item['input']} and the output {item['output']}")
    if data["verification"]:
        yield from verification_view(data["verification"])
    else:
        for item in manifest.get("assumptions", ()):
            yield paragraph(f"assumed: {Assumption.from_dict(item)}", "yellow")
        yield paragraph("not verified", "bold yellow")
    for model in manifest["models"]:
        size = sum(file["bytes"] for name, file in manifest["files"].items() if name.startswith(model["file"]))
        reason = f" ({manifest['opset_reason']})" if manifest.get("opset_reason") else ""
        engines = ", ".join(model["engines"])
        yield paragraph(f"{model['file']}: opset {model['opset']}{reason}, {_size(size)}, for {engines}")
    yield unbroken(f"bundle: {data['path']}", "bold")


def _findings(findings: Sequence[Mapping[str, Any]]) -> Iterable[RenderableType]:
    """Each finding that needs the user's attention; the others in one line."""
    for finding in findings:
        if not finding["mended"]:
            yield paragraph(f"{finding['severity']} {finding['code']}: {finding['message']}", "bold yellow")
            yield paragraph(f"  fix: {finding['fix']}")
    mended: dict[str, list[str]] = {}
    for finding in findings:
        if finding["mended"]:
            mended.setdefault(finding["code"], []).append(finding["target"])
    if mended:
        count = sum(map(len, mended.values()))
        targets = "; ".join(f"{code}: {', '.join(of_code)}" for code, of_code in mended.items())
        yield paragraph(f"{plural(count, 'problem')} fixed by opbridge, described in report.html ({targets})", "dim")


def _operators(data: Mapping[str, Any]) -> RenderableType:
    operators = data["manifest"].get("operators", [])
    sources = data["sources"].get("operators", {})
    result = table("operator", "rung", "provided by", "count", "where", right=("count",))
    for operator in operators:
        where = place(sources.get(operator["target"]))
        result.add_row(
            operator["target"], operator["rung"], operator.get("provider", ""), str(operator["count"]), where
        )
    result.caption = None if operators else plural(0, "operator")
    return result


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
