"""The findings about a model: its broken links, and other properties that are relevant to the user."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from opbridge import findings
from opbridge.capture.capture import Captured
from opbridge.findings.base import Finding
from opbridge.ladder.climbed import Break, Climbed, ClimbedAll
from opbridge.ladder.opset_reason import OpsetCause
from opbridge.ladder.step import Step
from opbridge.torch_graph import LOWEST_OPSET
from opbridge.torch_graph.targets import display_name

__all__ = ["describe_engine", "list_findings"]


def describe_engine(name: str, versions: Mapping[str, str]) -> str:
    """``"onnxruntime 1.31.1"``; the bare name for an engine whose name includes a version."""
    return name if "==" in name else f"{name} {versions[name]}"


def list_findings(
    climbed: ClimbedAll, versions: Mapping[str, str], captured: Captured | None = None
) -> tuple[Finding, ...]:
    """The broken links of a model, their fixes, and other properties that are relevant to the user.

    Args:
        climbed: The result of the ladder.
        versions: The version of each engine.
        captured: The captured program; None for an ONNX model.
    """
    onnx, found = climbed.onnx, []
    if onnx is not None:
        found += [_finding_of(item, onnx.steps, versions, captured) for item in onnx.breaks]
        broken = {finding.target for finding in found}
        found += [finding for step in onnx.steps if step.target not in broken for finding in _findings_of_step(step)]
        found += _raised_opset(onnx, broken)
        found += _unbuilt_kernels(onnx)
    for program in climbed.programs.values():
        found += [_finding_of(item, program.steps, versions, captured) for item in program.breaks]
    return (*found, *(_findings_of_program(captured) if captured is not None else ()))


def _findings_of_program(captured: Captured) -> Iterator[Finding]:
    if captured.was_training:
        yield findings.by_code("training-mode").finding(())
    for item in captured.state:
        yield findings.by_code("buffer-mutation").carried(item.buffer, item.input, item.output)
    if captured.converted:
        yield findings.by_code("converted-control-flow").finding(captured.converted)
    for source, statement in captured.unchecked:
        yield findings.by_code("unchecked-condition").finding(source, statement)
    for source in captured.untried:
        yield findings.by_code("untried-condition").finding(source)
    for finding in findings.in_program(captured.program):
        declared = finding.code == "narrowed-dimension" and finding.target in captured.bounded_inputs
        yield dataclasses.replace(finding, severity="info") if declared else finding


def _unbuilt_kernels(climbed: Climbed) -> Iterator[Finding]:
    missing = climbed.no_compiler
    if missing is None:
        return
    sources = {step.target: step.sources for step in climbed.steps}
    make = findings.by_code("no-compiler").finding
    for target in (*missing.served, *missing.lost):
        where = sources.get(target, ())
        yield make(target, reason=missing.reason, fix=missing.fix, has_body=target in missing.served, sources=where)


def _raised_opset(climbed: Climbed, broken: Collection[str]) -> Iterator[Finding]:
    """The finding about the operator that raised the opset, which may occur inside a function body only."""
    reason = climbed.opset_reason
    if reason.cause is not OpsetCause.OPERATOR or reason.name in broken:
        return
    sources = next((step.sources for step in climbed.steps if step.target == reason.name), ())
    make = findings.by_code("opset-raised").finding
    yield make(reason.name, opset=climbed.opset, instead_of=LOWEST_OPSET, sources=sources)


def _findings_of_step(step: Step) -> Iterator[Finding]:
    where = {"sources": step.sources}
    if step.provider == "catalog" and step.overrides:
        yield findings.by_code("wrong-mapping").finding(step.target, why=step.overrides, rung=step.rung, **where)
    elif step.provider == "catalog" and step.rung in ("decompose", "translate"):
        yield findings.by_code("unmapped-operator").finding(step.target, count=step.count, rung=step.rung, **where)


def _finding_of(item: Break, steps: Sequence[Step], versions: Mapping[str, str], captured: Captured | None) -> Finding:
    target = display_name(item.target) if captured is not None else item.target
    step = next((step for step in steps if step.target == target), None)
    rung = step.rung if item.mended and step is not None else None
    if item.link == "mapping":
        made: Finding = findings.by_code("unmapped-operator").finding(
            target,
            count=step.count if step else 1,
            rung=rung,
            sources=step.sources if step and step.sources else item.sources,
        )
    else:
        engine = describe_engine(item.engine, versions)
        common: dict[str, Any] = {"engine": engine, "reason": item.reason, "rung": rung, "sources": item.sources}
        if item.opset is not None:
            make = findings.by_code("inexpressible-node").finding
            made = make(target, node=item.node, opset=item.opset, **common)
        elif captured is not None:
            made = findings.by_code("no-kernel").finding(target, node=item.node, **common)
        else:
            how = step.detail if step is not None and rung else ""
            made = findings.by_code("refused-node").finding(target, how=how, **common)
    return dataclasses.replace(made, mended=item.mended, severity="info" if item.mended else "error")
