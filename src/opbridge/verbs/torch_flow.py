"""A PyTorch model through all stages: captured, brought to the engines, bundled, proved; and proved again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opbridge.bundle.bundle import Bundle, write_bundle
from opbridge.bundle.captured import REFERENCE, capture_entry, captured_of_bundle
from opbridge.bundle.manifest import make_manifest, make_sources
from opbridge.bundle.model_files import convert_programs, write_models
from opbridge.capture.capture import Captured
from opbridge.capture.entry import Entry
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.catalog.declare.fakes import check_fakes
from opbridge.catalog.declare.operator import without_kernels
from opbridge.engines.base import Engine
from opbridge.engines.process.isolation import IsolatedSession
from opbridge.engines.versions import Versions
from opbridge.errors import EngineError, InputError
from opbridge.ladder.climb_all import climb_all
from opbridge.ladder.kernel_shapes import check_kernel_shapes
from opbridge.proof.bisect.inside import Inside
from opbridge.proof.bisect.intermediates_engine import loader
from opbridge.proof.verify.comparability import reconsidered
from opbridge.proof.verify.inputs import InputSpecs
from opbridge.proof.verify.joined import joined, not_run
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.modes import Given, Modes, named_cases
from opbridge.proof.verify.options import VerifyOptions
from opbridge.proof.verify.reference_captured import CapturedReference
from opbridge.proof.verify.small_input import SmallInput
from opbridge.proof.verify.timing import timed
from opbridge.proof.verify.torch_times import timed_calls
from opbridge.proof.verify.verification import DEFAULT_SEED, Verification
from opbridge.proof.verify.verify import not_loaded, verify
from opbridge.report.page import render_page
from opbridge.torch_graph.origins import Origin
from opbridge.torch_graph.weights import has_other_weights, hashed_weights

__all__ = ["export_torch", "verify_torch_bundle"]


def export_torch(
    entry: Entry,
    engines: Sequence[Engine],
    catalog: Catalog,
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
    """Bring a PyTorch model to the engines. The parameters are those of :func:`opbridge.export`, resolved."""
    report("capturing")
    captured = capture_entry(entry, catalog, entry.input_names, entry.output_names)
    if with_reference:
        _refuse_functions(captured)
    with without_kernels():
        check_fakes(captured.program)
    with _hashed_beside(captured.program) as weights:
        climbed, programs = climb_all(captured, catalog.extended(captured.declared), engines, asked, report)
        built = [*(climbed.built.values() if climbed else ()), *(p.built for p in programs.values() if p.built)]
        check_kernel_shapes(captured.program, built)
        hashed = weights()
    with tempfile.TemporaryDirectory(prefix="opbridge-") as converted:
        files = convert_programs(programs, engines, Path(converted))
        described = {name: (files[name], program) for name, program in programs.items()}
        manifest = make_manifest(entry.text, captured, climbed, engines, hashed, described)

        def write(folder: Path) -> None:
            report("writing")
            shutil.copytree(converted, folder, dirs_exist_ok=True)
            write_models(folder, climbed, engines, external_data, list(programs.values()))
            if with_reference:
                torch.export.save(captured.program, str(folder / REFERENCE))

        def prove(folder: Path) -> Mapping[str, Any] | None:
            if not verify:
                return None
            report("verifying")
            draft = Bundle(folder, manifest)
            origins = climbed.translated.origins if climbed is not None else {}
            options = VerifyOptions(
                seed=DEFAULT_SEED if seed is None else seed,
                inputs=inputs,
                bisect=bisect,
                trace=trace,
                modes=modes,
                small=SmallInput(folder),
                journal=Journal(report=report),
            )
            found = [result for e in engines for result in _verify_engine(captured, draft, e, origins, options)]
            return joined(found).to_dict()

        return write_bundle(
            path,
            manifest,
            write,
            sources=make_sources(entry.text, captured, climbed, engines, list(programs.values())),
            verification=prove,
            page=render_page,
            overwrite=overwrite,
        )


def verify_torch_bundle(
    bundle: Bundle,
    reference: Any,
    ops: Ops,
    engines: Sequence[Engine],
    options: VerifyOptions,
    *,
    report: Callable[[str], None],
) -> Verification:
    """Prove a bundle again. The parameters are those of :func:`opbridge.verify`, resolved."""
    report("capturing")
    captured = captured_of_bundle(bundle, reference, ops)
    if has_other_weights(captured.program, bundle.manifest):
        raise InputError(
            f"The reference has other weights than the model that {bundle.path} was exported from.",
            fix="load the same weights in the entry (seed random ones with torch.manual_seed), or export again.",
        )
    report("verifying")
    recorded_values = bundle.sources.get("values", {})
    origins = {name: Origin(*place) for name, place in recorded_values.items()}
    results = [result for e in engines for result in _verify_engine(captured, bundle, e, origins, options)]
    if options.timings:
        report("timing")
        results = _timed(results, captured, bundle, engines, options.inputs)
    return joined(results)


def _timed(
    results: Sequence[Verification],
    captured: Captured,
    bundle: Bundle,
    engines: Sequence[Engine],
    given: Given | None,
) -> list[Verification]:
    """The verifications with the times of the nodes, on the user's first inputs or on the example's."""
    specs = InputSpecs(captured)
    flat = specs.given(named_cases(given)[0][1])[0] if given else list(specs.flat)
    with without_kernels():
        calls = timed_calls(captured.program, flat)
    return timed(results, bundle, engines, specs.feeds(flat), calls)


def _refuse_functions(captured: Captured) -> None:
    """Refuse to save a program with nodes of autograd.Functions: another process has no operator for them."""
    if captured.declared:
        spec = captured.declared[0]
        raise InputError(
            f"with_reference: the model calls {spec.target.partition('::')[2]}, whose symbolic at {spec.source} is one "
            "node of the program, and no other process could read that from a saved one.",
            fix="leave it out; opbridge.verify takes reference='file.py:function', or an Entry.",
        )


@contextlib.contextmanager
def _hashed_beside(program: torch.export.ExportedProgram) -> Iterator[Callable[[], dict[str, Any]]]:
    """Hash the weights on another thread (hashing releases the interpreter lock); yields what waits for the hash."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(hashed_weights, program).result


def _verify_engine(
    captured: Captured, bundle: Bundle, engine: Engine, origins: Mapping[str, Origin], options: VerifyOptions
) -> list[Verification]:
    """The verifications of one engine: with its kernels and, where every node has a body, without them."""
    model = bundle.model_file(engine.name)
    runs = bundle.runs(engine.name)
    if engine.not_run is not None:
        return [not_run(label, engine.not_run, options.seed) for label, _ in runs]
    found = []
    for label, libraries in runs:
        inside = Inside(model, loader(engine, libraries), origins) if engine.accepts == "onnx" else None
        found.append(_verify_session(captured, label, engine.name, model, libraries, inside, options))
    return found


def _verify_session(
    captured: Captured,
    label: str,
    engine: str,
    model: Path,
    libraries: Sequence[Path],
    inside: Inside | None,
    options: VerifyOptions,
) -> Verification:
    try:
        session = IsolatedSession(engine, model, libraries=libraries)
    except EngineError as error:
        return not_loaded(label, error, options.seed)
    with session, without_kernels():
        verified = verify(CapturedReference(captured), session, engine=label, options=options, inside=inside)
        return reconsidered(verified, captured, engine, libraries)
