"""The findings about a model: what was broken on the way to the engines, and what else is worth knowing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from opbridge import findings
from opbridge.capture.capture import Captured
from opbridge.findings.base import Finding
from opbridge.ladder.climb_torch import ClimbedProgram
from opbridge.ladder.climbed import Break, Climbed
from opbridge.ladder.steps import Step
from opbridge.torch_graph.targets import display_name

__all__ = ["describe_engine", "list_findings"]


def describe_engine(name: str, versions: Mapping[str, str]) -> str:
    """``"onnxruntime 1.31.1"``; of an engine whose name has a version, that name."""
    return name if "==" in name else f"{name} {versions[name]}"


def list_findings(
    captured: Captured,
    climbed: Climbed | None,
    versions: Mapping[str, str],
    programs: Sequence[ClimbedProgram] = (),
) -> list[Finding]:
    """What was broken on the way to the engines, what mends it, and what is worth knowing of the model.

    Args:
        captured: The model.
        climbed: Where the ladder ended for the engines that load ONNX; None without such an engine.
        versions: The version of each engine that was asked.
        programs: Where it ended for the engines that take a torch program.
    """
    found = [] if climbed is None else _findings_of_climb(climbed, versions)
    for program in programs:
        found += [_finding_of(item, program.steps, versions) for item in program.breaks]
    return found + _findings_of_program(captured)


def _findings_of_climb(climbed: Climbed, versions: Mapping[str, str]) -> list[Finding]:
    found = [_finding_of(item, climbed.plan.steps, versions) for item in climbed.breaks]
    broken = {finding.target for finding in found}
    for step in climbed.plan.steps:
        if step.target not in broken:
            found.extend(_finding_of_step(step, climbed))
    found.extend(_unbuilt_kernels(climbed))
    return found


def _findings_of_program(captured: Captured) -> list[Finding]:
    found: list[Finding] = []
    if captured.was_training:
        found.append(findings.by_code("training-mode").finding(()))
    for finding in findings.in_program(captured.program):
        declared = finding.code == "narrowed-dimension" and finding.target in captured.bounded_inputs
        found.append(dataclasses.replace(finding, severity="info") if declared else finding)
    return found


def _unbuilt_kernels(climbed: Climbed) -> Iterator[Finding]:
    missing = climbed.no_compiler
    if missing is None:
        return
    sources = {step.target: step.sources for step in climbed.plan.steps}
    make = findings.by_code("no-compiler").finding
    for target in (*missing.served, *missing.lost):
        where = sources.get(target, ())
        yield make(target, reason=missing.reason, fix=missing.fix, has_body=target in missing.served, sources=where)


def _finding_of_step(step: Step, climbed: Climbed) -> Iterator[Finding]:
    where = {"sources": step.sources}
    if climbed.plan.opset_reason == f"{step.target} needs opset {climbed.plan.opset}":
        make = findings.by_code("opset-raised").finding
        yield make(step.target, opset=climbed.plan.opset, instead_of=climbed.plan.floor, **where)
    if step.provider == "catalog" and step.overrides:
        yield findings.by_code("wrong-mapping").finding(step.target, why=step.overrides, rung=step.rung, **where)
    elif step.provider == "catalog" and step.rung in ("decompose", "translate"):
        yield findings.by_code("unmapped-operator").finding(step.target, count=step.count, rung=step.rung, **where)


def _finding_of(item: Break, steps: Sequence[Step], versions: Mapping[str, str]) -> Finding:
    target = display_name(item.target)
    step = next((step for step in steps if step.target == target), None)
    rung = step.rung if item.mended and step is not None else None
    if item.opset is not None:
        made: Finding = findings.by_code("inexpressible-node").finding(
            target,
            node=item.node,
            opset=item.opset,
            engine=describe_engine(item.engine, versions),
            reason=item.reason,
            rung=rung,
            sources=item.sources,
        )
    elif item.link == "kernel":
        engine = describe_engine(item.engine, versions)
        made = findings.by_code("no-kernel").finding(
            target, node=item.node, engine=engine, reason=item.reason, rung=rung, sources=item.sources
        )
    else:
        made = findings.by_code("unmapped-operator").finding(
            target,
            count=step.count if step else 1,
            rung=rung,
            sources=step.sources if step and step.sources else item.sources,
        )
    return dataclasses.replace(made, mended=item.mended, severity="info" if item.mended else "error")
