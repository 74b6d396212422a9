"""The public verbs, and the one loop over the stages behind them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opbridge.bundle import Bundle, check_destination, read_bundle, write_bundle, write_side_file
from opbridge.engines import get
from opbridge.engines.base import Engine
from opbridge.entry import Entry, find_entry, load_entry
from opbridge.errors import EngineError, InputError
from opbridge.isolation import IsolatedSession
from opbridge.manifest import distinct_models, make_manifest, make_sources
from opbridge.verification import Verification

if TYPE_CHECKING:
    import numpy as np
    import torch

    from opbridge.capture import Captured
    from opbridge.climb import Climbed
    from opbridge.diagnose import Diagnosis

__all__ = ["diagnose", "export", "verify"]

Ops = Sequence[str | Path | ModuleType | Callable[..., Any]]

REFERENCE = "reference.pt2"


def _quiet(stage: str) -> None:
    """The default of ``progress``."""


def diagnose(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    engines: Sequence[str] = ("onnxruntime",),
    dynamic_shapes: Any = None,
    opset: int | None = None,
    ops: Ops = (),
    progress: Callable[[str], None] = _quiet,
) -> Diagnosis:
    """List every operator of a model with its three links, and what mends each broken one.

    It never stops at the first problem; where the model can't be captured at all, that is the finding.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, or the text of an entry.
        args: Example inputs.
        kwargs: Example inputs by keyword.
        engines: The engines to ask for kernels.
        dynamic_shapes: As ``torch.export.export`` takes it; a dimension may also be named by a string.
        opset: The version of the standard ONNX domain to use; by default the lowest that serves every operator.
        ops: Operator files, directories, modules or decorated functions besides the catalog.
        progress: Told each stage that begins.

    Raises:
        InputError: The arguments do not fit the model.
        EngineNotInstalledError: An engine is not installed.
    """
    from opbridge.catalog import Catalog
    from opbridge.diagnose import diagnose_model

    entry = _entry(model, args, kwargs, dynamic_shapes)
    chosen = _engines(engines)
    _check_versions(chosen, opset)
    return diagnose_model(
        entry.model,
        entry.args,
        entry.kwargs,
        engines=chosen,
        catalog=Catalog.load(ops),
        dynamic_shapes=entry.dynamic_shapes,
        opset=opset,
        report=progress,
    )


def export(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | Path,
    engines: Sequence[str] = ("onnxruntime",),
    dynamic_shapes: Any = None,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool = True,
    ops: Ops = (),
    overwrite: bool = False,
    with_reference: bool = False,
    external_data: bool | None = None,
    ir_version: int | None = None,
    seed: int | None = None,
    entry: str | None = None,
    progress: Callable[[str], None] = _quiet,
) -> Bundle:
    """Bring a model to the engines: climb the ladder for every operator, write a bundle, and prove it.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, or the text of an entry
            (``"file.py:function"``).
        args: Example inputs.
        kwargs: Example inputs by keyword.
        path: The bundle, a folder that is made. It appears whole or not at all.
        engines: The engines it is for.
        dynamic_shapes: As ``torch.export.export`` takes it; a dimension may also be named by a string.
        opset: The version of the standard ONNX domain; by default the lowest that serves every operator.
        input_names: Names of the inputs in the ONNX model.
        output_names: Names of its outputs.
        verify: Compare the bundle with PyTorch on fresh inputs. A failed verification still writes the bundle, with
            ``bundle.verified`` False.
        ops: Operator files, directories, modules or decorated functions besides the catalog.
        overwrite: Replace a bundle that is there. Nothing else is ever replaced.
        with_reference: Save the captured program in the bundle, so that it can be verified without the model's source.
        external_data: Store the weights in a file of their own; by default only above 2 GB.
        ir_version: The version of the ONNX IR, 10 by default; below that, function overloads become names.
        seed: Of the fresh inputs.
        entry: The text under which the model can be found again, recorded for a later ``verify``.
        progress: Told each stage that begins.

    Raises:
        CaptureError: torch.export can't capture the model.
        UnsupportedOperatorError: No rung is left for some operators; all are named.
        TranslationError: A mapping fails.
        InputError: The arguments do not fit, or the bundle can't be written.
        EngineNotInstalledError: An engine is not installed.
    """
    from opbridge.capture import capture
    from opbridge.catalog import Catalog
    from opbridge.climb import climb
    from opbridge.operator import check_fakes, without_kernels

    check_destination(path, overwrite=overwrite)
    chosen = _engines(engines)
    _check_versions(chosen, opset, ir_version)
    source = _entry(model, args, kwargs, dynamic_shapes, input_names, output_names, text=entry)
    catalog = Catalog.load(ops)
    progress("capturing")
    captured = capture(
        source.model,
        source.args,
        source.kwargs,
        dynamic_shapes=source.dynamic_shapes,
        input_names=source.input_names,
        output_names=source.output_names,
        rewrites=catalog.rewrites(),
    )
    with without_kernels():
        check_fakes(captured.program)
    with _weights_hash_beside(captured.program) as weights:
        climbed = climb(
            captured.program,
            catalog,
            chosen,
            captured=captured,
            opset=opset,
            rewrites=captured.rewrites,
            ir_version=ir_version,
            report=progress,
        )
        manifest = make_manifest(source.text, captured, climbed, chosen, weights())

    def write(folder: Path) -> None:
        progress("writing")
        _write_models(folder, climbed, external_data)
        if with_reference:
            _save_reference(captured, folder / REFERENCE)

    def prove(folder: Path) -> Mapping[str, Any] | None:
        if not verify:
            return None
        progress("verifying")
        draft = Bundle(folder, manifest)
        return _joined([r for e in chosen for r in _verify_engine(captured, draft, e.name, seed=seed)]).to_dict()

    return write_bundle(
        path,
        manifest,
        write,
        sources=make_sources(source.text, captured, climbed, chosen),
        verification=prove,
        overwrite=overwrite,
    )


def verify(
    path: str | Path,
    *,
    reference: Any = None,
    inputs: Sequence[Mapping[str, np.ndarray]] | None = None,
    engines: Sequence[str] | None = None,
    seed: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    ops: Ops = (),
    progress: Callable[[str], None] = _quiet,
) -> Verification:
    """Prove a bundle equal to PyTorch again, on fresh inputs, and record the result in it.

    Args:
        path: The bundle.
        reference: What to compare with: the text of an entry, or an ``Entry``; by default the program saved in the
            bundle, else the entry that the bundle records.
        inputs: Inputs by name, one mapping per case, instead of fresh ones.
        engines: By default every engine that the bundle is for.
        seed: Of the fresh inputs.
        rtol: A relative tolerance instead of the budget that is worked out.
        atol: An absolute tolerance likewise.
        ops: As for ``export``.
        progress: Told each stage that begins.

    Raises:
        InputError: The bundle is damaged, the reference is missing, or it has other weights than the bundle.
    """
    from opbridge.weights import weights_hash

    bundle = read_bundle(path)
    progress("capturing")
    captured = _reference(bundle, reference, ops)
    recorded = bundle.manifest.get("weights")
    if recorded is not None and weights_hash(captured.program) != recorded:
        raise InputError(
            f"The reference has other weights than the model that {bundle.path} was exported from.",
            fix="load the same weights in the entry (seed random ones with torch.manual_seed), or export again.",
        )
    names = list(engines) if engines else [name for model in bundle.manifest["models"] for name in model["engines"]]
    _engines(names)
    progress("verifying")
    options = {"seed": seed, "inputs": inputs, "rtol": rtol, "atol": atol}
    verified = _joined([result for name in names for result in _verify_engine(captured, bundle, name, **options)])
    write_side_file(bundle, "verification.json", verified.to_dict())
    return verified


def _engines(names: Sequence[str]) -> list[Engine]:
    if isinstance(names, str):
        names = names.split(",")
    if not names:
        raise InputError("No engine was named.", fix="name at least one, for example engines=('onnxruntime',).")
    engines = [get(name) for name in dict.fromkeys(names)]
    for engine in engines:
        engine.version  # noqa: B018 - raises EngineNotInstalledError before any work is done
    return engines


def _check_versions(engines: Sequence[Engine], opset: int | None, ir_version: int | None = None) -> None:
    from opbridge.spec import LOWEST_OPSET

    if opset is not None and opset < LOWEST_OPSET:
        raise InputError(
            f"Opset {opset} is older than {LOWEST_OPSET}, the oldest that PyTorch's mappings are written for.",
            fix=f"ask for opset {LOWEST_OPSET} or newer, or leave it out for the lowest that serves the model.",
        )
    for engine in engines:
        if opset is not None and opset > engine.newest_opset:
            raise InputError(
                f"Opset {opset} is newer than {engine.newest_opset}, the newest that {engine.name} {engine.version} "
                "takes.",
                fix=f"ask for opset {engine.newest_opset} or older, or install a newer {engine.name}.",
            )
    if ir_version is not None and ir_version not in _IR_VERSIONS:
        raise InputError(
            f"ONNX IR version {ir_version} can't be written: opset {LOWEST_OPSET} needs at least {_IR_VERSIONS[0]}.",
            fix=f"ask for one from {_IR_VERSIONS[0]} to {_IR_VERSIONS[-1]}, or leave it out.",
        )


_IR_VERSIONS = range(8, 14)


def _entry(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    *,
    text: str | None = None,
) -> Entry:
    """The model and its inputs as one value, loaded if ``model`` is the text of an entry."""
    if isinstance(model, str | Path):
        loaded = load_entry(str(model))
        return dataclasses.replace(
            loaded,
            dynamic_shapes=dynamic_shapes if dynamic_shapes is not None else loaded.dynamic_shapes,
            input_names=input_names or loaded.input_names,
            output_names=output_names or loaded.output_names,
        )
    # A single tensor is iterable; it is wrapped by capture, not taken apart here.
    return Entry(text or "", model, args, dict(kwargs or {}), dynamic_shapes, input_names, output_names)  # type: ignore[arg-type]


def _reference(bundle: Bundle, reference: Any, ops: Ops) -> Captured:
    from opbridge.capture import capture, load_program
    from opbridge.catalog import Catalog

    inputs, outputs = [spec.name for spec in bundle.inputs], [spec.name for spec in bundle.outputs]
    if reference is None and REFERENCE in bundle.manifest["files"]:
        return capture(load_program(bundle.path / REFERENCE), input_names=inputs, output_names=outputs)
    if reference is None:
        reference = find_entry(bundle)
    entry = load_entry(str(reference)) if isinstance(reference, str | Path) else reference
    return capture(
        entry.model,
        entry.args,
        entry.kwargs,
        dynamic_shapes=entry.dynamic_shapes,
        input_names=inputs,
        output_names=outputs,
        rewrites=Catalog.load(ops).rewrites(),
    )


@contextlib.contextmanager
def _weights_hash_beside(program: torch.export.ExportedProgram) -> Iterator[Callable[[], str]]:
    """Hash the weights on another thread (hashing releases the interpreter lock); yields what waits for the hash."""
    from opbridge.weights import weights_hash

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(weights_hash, program).result


def _write_models(folder: Path, climbed: Climbed, external_data: bool | None) -> None:
    from opbridge.onnx_file import save_model

    for file, (_, model) in distinct_models(climbed).items():
        save_model(model, folder, name=file, external_data=external_data)
    for built in climbed.built.values():
        built.write(folder)


def _save_reference(captured: Captured, file: Path) -> None:
    import torch

    torch.export.save(captured.program, str(file))


def _verify_engine(captured: Captured, bundle: Bundle, engine: str, **options: Any) -> list[Verification]:
    """The verifications of one engine: with its kernels and, where every node has a body, without them."""
    model, kernels = bundle.model_file(engine), bundle.kernels(engine)
    if kernels is None:
        return [_verify_session(captured, engine, engine, model, (), options)]
    runs = [
        _verify_session(captured, f"{engine} with kernels", engine, model, (bundle.path / kernels["file"],), options)
    ]
    if kernels["optional"]:
        runs.append(_verify_session(captured, f"{engine} with function bodies", engine, model, (), options))
    return runs


def _verify_session(
    captured: Captured, label: str, engine: str, model: Path, libraries: Sequence[Path], options: Mapping[str, Any]
) -> Verification:
    from opbridge.operator import without_kernels
    from opbridge.verify import verify_captured

    try:
        session = IsolatedSession(engine, model, libraries=libraries)
    except EngineError as error:
        return Verification(label, "error", (), (), {}, options.get("seed") or 0, error=str(error))
    with session, without_kernels():
        return verify_captured(captured, session, engine=label, **options)


def _joined(results: Sequence[Verification]) -> Verification:
    """The verifications of several engines as one: failed if one failed."""
    if len(results) == 1:
        return results[0]
    worst = next((result for result in results if not result.passed), results[0])
    return dataclasses.replace(
        worst,
        seconds={key: sum(result.seconds.get(key, 0.0) for result in results) for key in worst.seconds},
        engine=", ".join(result.engine for result in results),
        cases=tuple(case for result in results for case in result.cases),
        comparisons=tuple(comparison for result in results for comparison in result.comparisons),
    )
