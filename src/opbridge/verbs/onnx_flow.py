"""The verbs for an existing ONNX model: it enters the flow at ``adapt``, and is verified against itself."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opbridge import findings
from opbridge.bundle.bundle import Bundle, write_bundle
from opbridge.bundle.manifest import make_model_manifest
from opbridge.bundle.model_files import write_models
from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.versions import Versions
from opbridge.errors import InputError, OpbridgeError
from opbridge.findings.base import Finding
from opbridge.ladder.climb_onnx import ClimbedModel, climb_onnx
from opbridge.ladder.findings import describe_engine
from opbridge.ladder.foreign_bodies import attach_bodies
from opbridge.onnx_model.model_hash import model_hash
from opbridge.onnx_model.read import model_of_proto, read_model
from opbridge.onnx_model.write import save_model
from opbridge.proof.bisect.inside import Inside
from opbridge.proof.bisect.intermediates_engine import loader
from opbridge.proof.verify.joined import joined, not_run
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.modes import Given, Modes, named_cases
from opbridge.proof.verify.onnx_inputs import OnnxInputs
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_onnx import OnnxReference
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.timing import timed
from opbridge.proof.verify.verification import DEFAULT_SEED, Verification
from opbridge.proof.verify.verify import not_loaded, verify
from opbridge.report.page import render_page
from opbridge.verbs.diagnosis import Diagnosis, OperatorLinks

if TYPE_CHECKING:
    import onnx_ir as ir

    from opbridge.catalog.declare.catalog import Catalog

__all__ = ["REFERENCE", "OnnxEntry", "diagnose_onnx", "export_onnx", "load_onnx", "verify_onnx_bundle"]

REFERENCE = "reference.onnx"


@dataclasses.dataclass(frozen=True)
class OnnxEntry:
    """An ONNX model with what is known of its inputs.

    Attributes:
        text: Its file as the user wrote it; empty for a model in memory.
        model: The model.
        file: Its file, if it is in one.
        examples: Arrays by input name that it takes, if the user gave some.
    """

    text: str
    model: ir.Model
    file: Path | None = None
    examples: Mapping[str, np.ndarray] | None = None

    @property
    def opset(self) -> int | None:
        """The version of the standard domain that the model imports, if it does."""
        imports = self.model.opset_imports
        return imports.get("", imports.get("ai.onnx"))


def load_onnx(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> OnnxEntry:
    """Read a model, or take one that is in memory.

    Args:
        model: A path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        args: Example inputs in order, as arrays.
        kwargs: Example inputs by name.

    Raises:
        InputError: The file is no model, or damaged; or the examples do not fit.
    """
    import onnx

    if isinstance(model, str | Path):
        entry = OnnxEntry(str(model), read_model(model), Path(model).resolve())
    elif isinstance(model, onnx.ModelProto):
        entry = OnnxEntry("", model_of_proto(model))
    else:
        entry = OnnxEntry("", model)
    graph = entry.model.graph
    names = [str(value.name) for value in graph.inputs if value.name not in graph.initializers]
    given = {**dict(zip(names, args, strict=False)), **dict(kwargs or {})}
    unknown = next((name for name in given if name not in names), None)
    if len(args) > len(names) or unknown is not None or 0 < len(given) < len(names):
        said = f"the model has no input {unknown!r}" if unknown is not None else f"it has {len(names)} inputs"
        raise InputError(
            f"The example inputs don't fit the model: {said}, and {len(args) + len(kwargs or {})} arrays were passed.",
            fix=f"pass one for each of {', '.join(names)}, or none.",
        )
    examples = {name: np.asarray(value) for name, value in given.items()}
    for value in graph.inputs:
        if value.name in examples:
            _check_example(value, examples[value.name])
    return dataclasses.replace(entry, examples=examples or None)


def _check_example(value: ir.Value, array: np.ndarray) -> None:
    if value.shape is None:
        return
    stated = [size if isinstance(size, int) else size.value for size in value.shape]
    fixed = [(size, actual) for size, actual in zip(stated, array.shape, strict=False) if isinstance(size, int)]
    if len(stated) != array.ndim or any(size != actual for size, actual in fixed):
        raise InputError(
            f"The example input {value.name!r} has the shape {list(array.shape)}, and the model takes {stated}.",
            fix="pass an array of that shape, or no examples at all.",
        )


def diagnose_onnx(
    entry: OnnxEntry, engines: Sequence[Engine], catalog: Catalog | None, asked: Versions, report: Callable[[str], None]
) -> Diagnosis:
    """What the engines refuse of a model, and what mends it."""
    started = time.perf_counter()
    versions = {engine.name: engine.version for engine in engines}
    climbed = climb_onnx(entry.model, catalog, engines, asked=asked, dry=True, report=report)
    lost = {found.target for found in climbed.breaks if not found.mended}
    return Diagnosis(
        operators=tuple(OperatorLinks(step, True, True, step.target not in lost) for step in climbed.steps),
        findings=tuple(_findings(climbed, versions)),
        engines=versions,
        opset=climbed.opset,
        opset_reason=climbed.opset_reason,
        seconds=time.perf_counter() - started,
    )


def _findings(climbed: ClimbedModel, versions: Mapping[str, str]) -> Iterator[Finding]:
    steps = {step.target: step for step in climbed.steps}
    for found in climbed.breaks:
        step = steps.get(found.target)
        rung = step.rung if found.mended and step is not None else None
        common = {"engine": describe_engine(found.engine, versions), "reason": found.reason, "sources": found.sources}
        if found.opset is not None:
            make = findings.by_code("inexpressible-node").finding
            yield make(found.target, node=found.node, opset=found.opset, rung=rung, **common)
        else:
            make = findings.by_code("refused-node").finding
            yield make(found.target, rung=rung, how=step.detail if step is not None and rung else "", **common)
    yield from _unbuilt_kernels(climbed)


def _unbuilt_kernels(climbed: ClimbedModel) -> Iterator[Finding]:
    missing = climbed.no_compiler
    if missing is not None:
        make = findings.by_code("no-compiler").finding
        for target in (*missing.served, *missing.lost):
            yield make(target, reason=missing.reason, fix=missing.fix, has_body=target in missing.served)


def export_onnx(
    entry: OnnxEntry,
    engines: Sequence[Engine],
    catalog: Catalog | None,
    asked: Versions,
    *,
    path: str | Path,
    verify: bool,
    overwrite: bool,
    with_reference: bool,
    external_data: bool | None,
    inputs: Given | None,
    modes: Modes,
    seed: int | None,
    bisect: bool,
    trace: bool,
    report: Callable[[str], None],
) -> Bundle:
    """Bring a model to the engines, write a bundle and prove it. The parameters are :func:`opbridge.export`'s."""
    original = model_hash(entry.model)
    climbed = climb_onnx(entry.model, catalog, engines, asked=asked, report=report)
    manifest = make_model_manifest(entry.text, climbed, engines, original)

    def write(folder: Path) -> None:
        report("writing")
        write_models(folder, climbed, engines, external_data)
        if with_reference:
            save_model(climbed.original, folder, name=REFERENCE, external_data=external_data)

    def prove(folder: Path) -> Mapping[str, Any] | None:
        if not verify:
            return None
        report("verifying")
        options = VerifyOptions(
            seed=DEFAULT_SEED if seed is None else seed,
            inputs=inputs,
            bisect=bisect,
            trace=trace,
            modes=modes,
            small=SmallInput(folder),
            journal=Journal(report=report),
        )
        draft = Bundle(folder, manifest)
        return verify_bundle_models(climbed.original, draft, engines, options, entry.examples).to_dict()

    versions = {engine.name: engine.version for engine in engines}
    sources = {
        "entry_path": str(entry.file) if entry.file is not None else None,
        "nodes": {},
        "operators": {step.target: list(step.sources) for step in climbed.steps},
        "findings": [finding.to_dict() for finding in _findings(climbed, versions)],
    }
    return write_bundle(
        path, manifest, write, sources=sources, verification=prove, page=render_page, overwrite=overwrite
    )


def verify_onnx_bundle(
    bundle: Bundle, reference: Any, catalog: Catalog | None, engines: Sequence[Engine], options: VerifyOptions
) -> Verification:
    """Verify a bundle that was made of an ONNX model once more.

    Raises:
        InputError: The original is not found, or it is another model.
    """
    original = _original(bundle, reference, catalog)
    return verify_bundle_models(original, bundle, engines, options)


def _original(bundle: Bundle, reference: Any, catalog: Catalog | None) -> ir.Model:
    if reference is None and REFERENCE in bundle.manifest["files"]:
        return read_model(bundle.path / REFERENCE)
    entry = load_onnx(_find(bundle) if reference is None else reference)
    recorded = bundle.manifest["original"]["sha256"]
    if model_hash(entry.model) != recorded:
        raise InputError(
            f"{entry.text or 'The reference'} is not the model that {bundle.path} was made from: its content differs.",
            fix="name the original with --reference model.onnx, or export again (--with-reference keeps a copy).",
        )
    model = entry.model.clone()
    if catalog is not None:
        attach_bodies(model, catalog)
    return model


def _find(bundle: Bundle) -> Path:
    """The original's file, at the place recorded in the manifest or where it was when the bundle was made."""
    for place in (bundle.entry, bundle.sources.get("entry_path")):
        if isinstance(place, str) and Path(place).is_file():
            return Path(place)
    raise InputError(
        f"The ONNX model that {bundle.path} was made from ({bundle.entry or 'one in memory'}) is not here.",
        fix="name it with --reference model.onnx; --with-reference of export keeps a copy in the bundle.",
    )


def verify_bundle_models(
    original: ir.Model,
    bundle: Bundle,
    engines: Sequence[Engine],
    options: VerifyOptions,
    examples: Mapping[str, np.ndarray] | None = None,
) -> Verification:
    """The verifications of all engines, each with its kernels and, where it has bodies for them, without."""
    results = []
    for engine in engines:
        for label, libraries in bundle.runs(engine.name):
            if engine.not_run is not None:
                results.append(not_run(label, engine.not_run, options.seed))
                continue
            file = bundle.model_file(engine.name)

            try:
                session = IsolatedSession(engine.name, file, libraries=libraries)
            except OpbridgeError as error:
                results.append(not_loaded(label, error, options.seed))
                continue
            inside = Inside(file, loader(engine, libraries))
            with session, OnnxReference(original, engine, examples=examples) as reference:
                results.append(verify(reference, session, engine=label, options=options, inside=inside))
    return joined(timed(results, bundle, engines, _feeds(original, options, examples)) if options.timings else results)


def _feeds(
    original: ir.Model, options: VerifyOptions, examples: Mapping[str, np.ndarray] | None
) -> Mapping[str, np.ndarray]:
    """Inputs to time the nodes with: the user's first, or tame ones."""
    if options.inputs:
        return named_cases(options.inputs)[0][1]
    inputs = OnnxInputs(original, examples)
    return inputs.feeds(next(inputs.first_sizes()), options.seed, inputs.scales()[-1])
