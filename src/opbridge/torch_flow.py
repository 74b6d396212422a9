"""A PyTorch model through all stages: captured, brought to the engines, bundled, proved; and proved again."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opbridge.arguments import Ops
from opbridge.bundle import Bundle, write_bundle
from opbridge.capture import Captured, capture, load_program
from opbridge.catalog import Catalog
from opbridge.climb import climb
from opbridge.climbed import Climbed
from opbridge.engines.base import Engine
from opbridge.entry import Entry, find_entry, load_entry
from opbridge.errors import EngineError, InputError
from opbridge.isolation import IsolatedSession
from opbridge.kernel_shapes import check_kernel_shapes
from opbridge.legacy.comparability import reconsidered
from opbridge.manifest import distinct_models, make_manifest, make_sources
from opbridge.onnx_file import save_model
from opbridge.operator import check_fakes, without_kernels
from opbridge.proof.joined import joined
from opbridge.verification import Verification
from opbridge.verify import verify_captured
from opbridge.versions import Versions
from opbridge.weights import weights_hash

__all__ = ["export_torch", "verify_torch_bundle"]

REFERENCE = "reference.pt2"


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
    seed: int | None,
    report: Callable[[str], None],
) -> Bundle:
    """Bring a PyTorch model to the engines. The parameters are those of :func:`opbridge.export`, resolved."""
    report("capturing")
    captured = _capture(entry, catalog, entry.input_names, entry.output_names)
    if with_reference:
        _refuse_functions(captured)
    with without_kernels():
        check_fakes(captured.program)
    with _weights_hash_beside(captured.program) as weights:
        climbed = climb(
            captured.program,
            catalog.extended(captured.declared),
            engines,
            captured=captured,
            opset=asked.opset,
            rewrites=captured.rewrites,
            ir_version=asked.ir_version,
            report=report,
        )
        check_kernel_shapes(captured.program, climbed.built.values())
        manifest = make_manifest(entry.text, captured, climbed, engines, weights())

    def write(folder: Path) -> None:
        report("writing")
        _write_models(folder, climbed, external_data)
        if with_reference:
            torch.export.save(captured.program, str(folder / REFERENCE))

    def prove(folder: Path) -> Mapping[str, Any] | None:
        if not verify:
            return None
        report("verifying")
        draft = Bundle(folder, manifest)
        results = [result for engine in engines for result in _verify_engine(captured, draft, engine.name, seed=seed)]
        return joined(results).to_dict()

    return write_bundle(
        path,
        manifest,
        write,
        sources=make_sources(entry.text, captured, climbed, engines),
        verification=prove,
        overwrite=overwrite,
    )


def verify_torch_bundle(
    bundle: Bundle,
    reference: Any,
    ops: Ops,
    engines: Sequence[Engine],
    options: Mapping[str, Any],
    *,
    report: Callable[[str], None],
) -> Verification:
    """Prove a bundle again. The parameters are those of :func:`opbridge.verify`, resolved."""
    report("capturing")
    captured = _reference(bundle, reference, ops)
    recorded = bundle.manifest.get("weights")
    if recorded is not None and weights_hash(captured.program) != recorded:
        raise InputError(
            f"The reference has other weights than the model that {bundle.path} was exported from.",
            fix="load the same weights in the entry (seed random ones with torch.manual_seed), or export again.",
        )
    report("verifying")
    return joined([result for e in engines for result in _verify_engine(captured, bundle, e.name, **options)])


def _capture(
    entry: Entry, catalog: Catalog, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> Captured:
    return capture(
        entry.model,
        entry.args,
        entry.kwargs,
        dynamic_shapes=entry.dynamic_shapes,
        input_names=input_names,
        output_names=output_names,
        rewrites=catalog.rewrites(),
    )


def _refuse_functions(captured: Captured) -> None:
    """Refuse to save a program with nodes of autograd.Functions: another process has no operator for them."""
    if captured.declared:
        spec = captured.declared[0]
        raise InputError(
            f"with_reference: the model calls {spec.target.partition('::')[2]}, whose symbolic at {spec.source} is one "
            "node of the program, and no other process could read that from a saved one.",
            fix="leave it out; opbridge.verify takes reference='file.py:function', or an Entry.",
        )


def _reference(bundle: Bundle, reference: Any, ops: Ops) -> Captured:
    inputs, outputs = [spec.name for spec in bundle.inputs], [spec.name for spec in bundle.outputs]
    if reference is None and REFERENCE in bundle.manifest["files"]:
        return capture(load_program(bundle.path / REFERENCE), input_names=inputs, output_names=outputs)
    if reference is None:
        reference = find_entry(bundle)
    entry = load_entry(str(reference)) if isinstance(reference, str | Path) else reference
    return _capture(entry, Catalog.load(ops), inputs, outputs)


@contextlib.contextmanager
def _weights_hash_beside(program: torch.export.ExportedProgram) -> Iterator[Callable[[], str]]:
    """Hash the weights on another thread (hashing releases the interpreter lock); yields what waits for the hash."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(weights_hash, program).result


def _write_models(folder: Path, climbed: Climbed, external_data: bool | None) -> None:
    for file, (_, model) in distinct_models(climbed).items():
        save_model(model, folder, name=file, external_data=external_data)
    for built in climbed.built.values():
        built.write(folder)


def _verify_engine(captured: Captured, bundle: Bundle, engine: str, **options: Any) -> list[Verification]:
    """The verifications of one engine: with its kernels and, where every node has a body, without them."""
    model = bundle.model_file(engine)
    runs = bundle.runs(engine)
    return [_verify_session(captured, label, engine, model, libraries, options) for label, libraries in runs]


def _verify_session(
    captured: Captured, label: str, engine: str, model: Path, libraries: Sequence[Path], options: Mapping[str, Any]
) -> Verification:
    try:
        session = IsolatedSession(engine, model, libraries=libraries)
    except EngineError as error:
        return Verification(label, "error", (), (), {}, options.get("seed") or 0, error=str(error))
    with session, without_kernels():
        verified = verify_captured(captured, session, engine=label, **options)
        return reconsidered(verified, captured, engine, libraries)
