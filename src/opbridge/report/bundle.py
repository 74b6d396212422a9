"""A bundle as tables: the rung of each operator, the verification, and the path of the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from opbridge.capture.assumption import Assumption
from opbridge.report.page_words import CLAIM
from opbridge.report.rungs import NOTABLE, operators_view, rungs
from opbridge.report.tables import paragraph, unbroken
from opbridge.report.verification import verification_view
from opbridge.torch_graph import LOWEST_OPSET

__all__ = ["bundle_view"]


def bundle_view(data: Mapping[str, Any], *, verbose: bool = False) -> Iterable[RenderableType]:
    """Render ``Bundle.to_dict()``.

    Args:
        data: The data.
        verbose: Whether to list every operator with its rung, the problems that opbridge fixed, and all statistics.
    """
    manifest = data["manifest"]
    found = data["sources"].get("findings", [])
    findings = [finding for finding in found if finding["severity"] != "info" or finding["code"] in NOTABLE]
    if verbose:
        yield operators_view(_with_sources(data))
        yield ""
    elif manifest.get("operators"):
        yield paragraph(rungs(manifest["operators"]), "dim")
    yield from _findings(findings, verbose)
    if manifest.get("was_training") and not data["verification"]:
        yield paragraph("exported in evaluation mode; the model was passed in training mode")
    for item in manifest.get("state_buffers", ()):
        yield paragraph(f"state: {item['buffer']} is the input {item['input']} and the output {item['output']}")
    if data["verification"]:
        yield from verification_view(data["verification"], verbose=verbose)
        if data["claim"]:
            yield paragraph(CLAIM, "bold yellow")
    else:
        for item in manifest.get("assumptions", ()):
            yield paragraph(f"assumed: {Assumption.from_dict(item)}", "yellow")
        yield paragraph("not verified", "bold yellow")
    for model in manifest["models"]:
        size = sum(file["bytes"] for name, file in manifest["files"].items() if name.startswith(model["file"]))
        raised = verbose or model["opset"] > LOWEST_OPSET
        reason = f" ({manifest['opset_reason']})" if raised and manifest.get("opset_reason") else ""
        engines = ", ".join(model["engines"])
        nan = "; NaN may differ from PyTorch's (--nan exact)" if manifest.get("nan") == "absent" else ""
        yield paragraph(f"{model['file']}: opset {model['opset']}{reason}, {_size(size)}, for {engines}{nan}", "dim")
    yield unbroken(f"bundle: {data['path']}", "bold")


def _findings(findings: Sequence[Mapping[str, Any]], verbose: bool) -> Iterable[RenderableType]:
    """The findings that need the user's attention; on demand, those that opbridge fixed too."""
    for finding in findings:
        if not finding["mended"]:
            yield paragraph(f"{finding['severity']} {finding['code']}: {finding['message']}", "bold yellow")
            yield paragraph(f"  fix: {finding['fix']}")
        elif finding["code"] in NOTABLE:
            yield paragraph(finding["message"], "dim")
        elif verbose:
            yield paragraph(f"fixed by opbridge: {finding['message']}", "dim")


def _with_sources(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    sources = data["sources"].get("operators", {})
    operators = data["manifest"].get("operators", [])
    return [{"provider": "", **operator, "sources": sources.get(operator["target"])} for operator in operators]


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
