"""``diagnose``: stages 1 to 5 run dry. Every broken link of every operator, and what mends it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbridge import findings
from opbridge.capture.capture import Captured, capture
from opbridge.capture.failures import CaptureFailure
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine
from opbridge.errors import CaptureError, TranslationError
from opbridge.findings.base import Finding
from opbridge.ladder.climb import climb
from opbridge.ladder.climb_torch import ClimbedProgram, climb_torch
from opbridge.ladder.climbed import Break, Climbed
from opbridge.ladder.steps import Step
from opbridge.torch_graph.distinct import distinct_operators
from opbridge.torch_graph.targets import display_name
from opbridge.verbs.diagnosis import Diagnosis, OperatorLinks, describe_engine

__all__ = ["Diagnosis", "Finding", "OperatorLinks", "diagnose_model", "list_findings"]


def diagnose_model(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    engines: Sequence[Engine],
    catalog: Catalog,
    dynamic_shapes: Any,
    opset: int | None,
    report: Callable[[str], None],
) -> Diagnosis:
    """Diagnose a model. The parameters are those of :func:`opbridge.diagnose`, resolved."""
    started = time.perf_counter()
    versions = {engine.name: engine.version for engine in engines}
    report("capturing")
    try:
        captured = capture(model, args, kwargs, dynamic_shapes=dynamic_shapes, rewrites=catalog.rewrites())
    except CaptureError as error:
        return _not_captured(error, versions, time.perf_counter() - started)
    loading_onnx = [engine for engine in engines if engine.accepts == "onnx"]
    try:
        programs = [
            climb_torch(captured, catalog.extended(captured.declared), engine, dry=True, report=report)
            for engine in engines
            if engine not in loading_onnx
        ]
        climbed = loading_onnx and climb(
            distinct_operators(captured.program),
            catalog.extended(captured.declared),
            loading_onnx,
            captured=None,
            opset=opset,
            rewrites=captured.rewrites,
            whole=captured.program,
            report=report,
        )
    except TranslationError as error:
        found = Finding("mapping-failed", error.target or "", error.message, error.fix)
        return Diagnosis((), (found,), versions, None, "", time.perf_counter() - started, error.details or "")
    return Diagnosis(
        operators=_all_links(climbed or None, programs),
        findings=tuple(list_findings(captured, climbed or None, versions, programs)),
        engines=versions,
        opset=climbed.plan.opset if climbed else None,
        opset_reason=climbed.plan.opset_reason if climbed else "",
        seconds=time.perf_counter() - started,
    )


def _not_captured(error: CaptureError, versions: Mapping[str, str], seconds: float) -> Diagnosis:
    finding = (
        error.finding
        if isinstance(error, CaptureFailure)
        else Finding("capture-failed", "model", error.message, error.fix)
    )
    return Diagnosis((), (finding,), versions, None, "", seconds, error.details or "")


def _links(step: Step, climbed: Climbed) -> OperatorLinks:
    left = {(display_name(item.target), item.link) for item in climbed.breaks if not item.mended}
    kernel = (step.target, "kernel") not in left
    # An operator whose kernels are all refused has no rung left either, but something does map it.
    mapping = (step.rung != "missing" or not kernel) and (step.target, "mapping") not in left
    return OperatorLinks(step, True, mapping, kernel if mapping else None)


def _all_links(climbed: Climbed | None, programs: Sequence[ClimbedProgram]) -> tuple[OperatorLinks, ...]:
    """The links of each operator: its kernel is missing where one of the engines refuses it for good."""
    lost = {display_name(item.target) for program in programs for item in program.breaks if not item.mended}
    if climbed is None:
        steps = {step.target: step for program in programs for step in program.steps}
        return tuple(OperatorLinks(step, True, True, step.target not in lost) for step in steps.values())
    links = (_links(step, climbed) for step in climbed.plan.steps)
    return tuple(
        dataclasses.replace(link, kernel=False) if link.kernel and link.step.target in lost else link for link in links
    )


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
