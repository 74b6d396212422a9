"""``diagnose``: capture a model, climb the ladder without building, and list every broken link with its fix."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.engines import chosen as engines_named
from opbridge.engines.base import Engine
from opbridge.errors import CaptureError, TranslationError
from opbridge.findings import missing_fake
from opbridge.findings.base import Finding
from opbridge.verbs.arguments import catalog_of, opened, quiet
from opbridge.verbs.diagnosis import Diagnosis, OperatorLinks

if TYPE_CHECKING:
    from opbridge.capture.entry import Entry
    from opbridge.engines.versions import Versions
    from opbridge.ladder.climbed import Break, ClimbedAll
    from opbridge.verbs.onnx_entry import OnnxEntry
    from opbridge.verbs.sources import Source

__all__ = ["diagnose", "diagnose_entry"]


def diagnose(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    engines: Sequence[str] = ("onnxruntime",),
    dynamic_shapes: Any = None,
    opset: int | str | None = None,
    ops: Ops = (),
    progress: Callable[[str], None] = quiet,
) -> Diagnosis:
    """List every operator of a model with its three links, and the fix of each broken one.

    The diagnosis does not stop at the first problem. If the model can't be captured, each line that stops the capture
    is a finding, and the operators are those that the example inputs reach.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, the text of an entry; or an ONNX model:
            the path of an ``.onnx`` file, an ``onnx.ModelProto``, an ``onnx_ir.Model``.
        args: Example inputs.
        kwargs: Example inputs by keyword.
        engines: The engines to query for kernels: "onnxruntime" is the installed version, "onnxruntime==1.16.3" that
            version in a separate environment, which is created on first use.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``; a dimension may also be named by
            a string.
        opset: The version of the standard ONNX domain to use, 11 or newer; by default chosen as by
            :func:`export`; "lowest" is the lowest that supports every operator.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        progress: A callback that receives the name of each stage as it begins.

    Raises:
        InputError: The arguments do not fit the model.
        EngineNotInstalledError: An engine is not installed.
    """
    from opbridge.engines.versions import Versions

    chosen = engines_named(engines, progress)
    requested = Versions.of(opset)
    entry = opened(model, args, kwargs, dynamic_shapes, engines=chosen, requested=requested)
    return diagnose_entry(entry, chosen, catalog_of(entry, ops), requested, progress)


def diagnose_entry(
    entry: Entry | OnnxEntry,
    engines: Sequence[Engine],
    catalog: Catalog,
    requested: Versions,
    report: Callable[[str], None] = quiet,
) -> Diagnosis:
    """Diagnose a loaded model.

    Args:
        entry: The model with its inputs.
        engines: The engines.
        catalog: The mappings and the declared bodies.
        requested: The opset that the user requests.
        report: A callback that receives the name of each stage as it begins.
    """
    from opbridge.ladder.climb import climb_all
    from opbridge.ladder.findings import list_findings
    from opbridge.torch_graph.example_values import example_fakes

    started = time.perf_counter()
    versions = {engine.name: engine.version for engine in engines}
    source, found, details = _opened(entry, catalog, report)
    if source is None:
        return Diagnosis((), found, versions, None, "", _seconds_since(started), details)
    try:
        with example_fakes(finding.target for finding in found if finding.code == missing_fake.CODE):
            climbed = climb_all(source.model, source.catalog, engines, requested, dry=True, report=report)
    except (CaptureError, TranslationError) as error:
        found = (*found, _finding_of_error(error))
        return Diagnosis((), found, versions, None, "", _seconds_since(started), error.details or "")
    return Diagnosis(
        operators=tuple(_links(climbed)),
        findings=(*found, *list_findings(climbed, versions, source.captured)),
        engines=versions,
        opset=climbed.onnx.opset if climbed.onnx is not None else None,
        opset_reason=str(climbed.onnx.opset_reason) if climbed.onnx is not None else "",
        seconds=_seconds_since(started),
    )


def _opened(
    entry: Entry | OnnxEntry, catalog: Catalog, report: Callable[[str], None]
) -> tuple[Source | None, tuple[Finding, ...], str]:
    """The source, what stops its capture, and details for a log.

    A model that can't be captured is captured with the branches, the values and the sizes of the example inputs, so
    that what follows the first obstacle is found too.
    """
    from opbridge.capture.entry import Entry
    from opbridge.capture.failures import CaptureFailure
    from opbridge.verbs.sources import open_source

    errors: list[CaptureError] = []
    for assume in (False, True):
        try:
            tried = dataclasses.replace(entry, assume=assume) if isinstance(entry, Entry) else entry
            source = open_source(tried, catalog, report)
        except CaptureError as error:
            errors.append(error)
        else:
            obstacles = source.captured.obstacles if source.captured is not None else ()
            # The first error says why a statement can't be converted; the obstacle, only that it reads a value.
            better = {error.finding.sources: error.finding for error in errors if isinstance(error, CaptureFailure)}
            return source, tuple(dict.fromkeys(better.get(one.sources, one) for one in obstacles)), ""
    found = {error.message: _finding_of_error(error) for error in errors}
    return None, tuple(found.values()), errors[0].details or ""


def _seconds_since(started: float) -> float:
    return round(time.perf_counter() - started, 3)


def _finding_of_error(error: CaptureError | TranslationError) -> Finding:
    from opbridge.capture.failures import CaptureFailure

    if isinstance(error, TranslationError):
        return Finding("mapping-failed", error.target or "", error.message, error.fix)
    if isinstance(error, CaptureFailure):
        return error.finding
    return Finding("capture-failed", "model", error.message, error.fix)


def _links(climbed: ClimbedAll) -> Iterator[OperatorLinks]:
    """The links of each operator; the kernel link is broken if an engine refuses the operator on every rung."""
    from opbridge.torch_graph.targets import display_name

    def left(breaks: Sequence[Break]) -> set[tuple[str, str]]:
        return {(display_name(item.target), item.link) for item in breaks if not item.mended}

    of_all = left(climbed.breaks)
    of_first = left(climbed.onnx.breaks) if climbed.onnx is not None else of_all
    for step in climbed.steps:
        has_kernel = (step.target, "kernel") not in of_first
        # An operator whose nodes an engine refuses on every rung has no rung left, but it has a mapping.
        mapping = (step.rung != "missing" or not has_kernel) and (step.target, "mapping") not in of_first
        kernel = (step.target, "kernel") not in of_all
        yield OperatorLinks(**vars(step), torch=True, mapping=mapping, kernel=kernel if mapping else None)
