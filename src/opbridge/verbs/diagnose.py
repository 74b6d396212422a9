"""``diagnose``: stages 1 to 5 run dry. Every broken link of every operator, and what mends it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbridge.capture.capture import capture
from opbridge.capture.failures import CaptureFailure
from opbridge.catalog.declare.catalog import Catalog
from opbridge.engines.base import Engine
from opbridge.engines.roles import TakesTorchPrograms
from opbridge.errors import CaptureError, TranslationError
from opbridge.findings.base import Finding
from opbridge.ladder.climb import climb
from opbridge.ladder.climb_torch import ClimbedProgram, climb_torch
from opbridge.ladder.climbed import Climbed
from opbridge.ladder.findings import list_findings
from opbridge.ladder.steps import Step
from opbridge.torch_graph.distinct import distinct_operators
from opbridge.torch_graph.targets import display_name
from opbridge.verbs.diagnosis import Diagnosis, OperatorLinks

__all__ = ["Diagnosis", "Finding", "OperatorLinks", "diagnose_model"]


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
    loading_onnx = [engine for engine in engines if not isinstance(engine, TakesTorchPrograms)]
    try:
        programs = [
            climb_torch(captured, catalog.extended(captured.declared), engine, dry=True, report=report)
            for engine in engines
            if isinstance(engine, TakesTorchPrograms)
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
