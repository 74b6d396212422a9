"""``export``: bring a model to the engines, write a bundle, and verify it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.atomic import TemporaryFolder
from opbridge.bundle.bundle import Bundle
from opbridge.bundle.checks import read_manifest
from opbridge.bundle.destination import check_destination
from opbridge.bundle.trust import Trust
from opbridge.bundle.write import write_bundle
from opbridge.catalog.declare.catalog import Ops
from opbridge.engines import chosen as engines_named
from opbridge.engines.base import Engine
from opbridge.engines.process.limits import limited
from opbridge.errors import TranslationError, UnsupportedOperatorError
from opbridge.legacy.switch import exporting, written
from opbridge.verbs.arguments import catalog_of, opened, quiet

if TYPE_CHECKING:
    from opbridge.ladder.climbed import ClimbedAll
    from opbridge.proof.verify.modes import Given as Inputs
    from opbridge.proof.verify.options import VerifyOptions
    from opbridge.proof.verify.verification import Verification
    from opbridge.verbs.options import ExportOptions
    from opbridge.verbs.sources import Source

__all__ = ["export"]


def export(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | Path,
    engines: Sequence[str] = ("onnxruntime",),
    dynamic_shapes: Any = None,
    opset: int | str | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    verify: bool = True,
    ops: Ops = (),
    overwrite: bool = False,
    with_reference: bool = False,
    external_data: bool | None = None,
    ir_version: int | None = None,
    state: bool = False,
    assume: bool | str = False,
    inputs: Inputs | None = None,
    seed: int | None = None,
    edge_sizes: bool = False,
    special_values: bool | str = False,
    shrink: float | None = None,
    bisect: bool = True,
    trace: bool = False,
    entry: str | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    nan: str = "auto",
    kernels: str = "auto",
    progress: Callable[[str], None] = quiet,
) -> Bundle:
    """Export a model for the engines, write a bundle, and verify it.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, or the text of an entry
            (``"file.py:function"``). Or an ONNX model: the path of an ``.onnx`` file, an ``onnx.ModelProto``, an
            ``onnx_ir.Model``; it needs no capture or translation, and is verified against itself.
        args: Example inputs; for an ONNX model, optional arrays.
        kwargs: Example inputs by keyword.
        path: The folder of the bundle, which is created atomically.
        engines: The engines to export for; "onnxruntime==1.16.3" is that version in a separate environment. With
            ``()`` or "none" the ONNX model is written as the mappings give it, for an engine that opbridge does not
            know, and is not run: ``bundle.verified`` is None.
        dynamic_shapes: The dynamic dimensions, in the form of ``torch.export.export``; a dimension may also be named by
            a string.
        opset: The version of the standard ONNX domain, 11 or newer; by default the lowest that supports every operator
            and every faster operator that the engine's versions of the last two years take, or the newest that the
            engine accepts, if that is lower. "lowest" does without the faster operators.
        input_names: Names of the inputs in the ONNX model.
        output_names: Names of the outputs in the ONNX model.
        verify: Whether to compare the bundle with PyTorch on fresh inputs. If the verification fails, the bundle is
            still written, and ``bundle.verified`` is False.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        overwrite: Whether to replace an existing bundle. Other files and folders are never replaced.
        with_reference: Whether to save the captured program, or the ONNX model, in the bundle, so that a later
            verification does not need the model's source.
        external_data: Whether to store the weights in a separate file; by default only above 2 GB.
        ir_version: The version of the ONNX IR; by default 10, or the version that the opset or the engine requires.
            Below 10, function overloads become part of the names; below 8, functions are inlined.
        state: Whether each buffer or tensor attribute that ``forward`` changes (a recurrent state) becomes an input
            ``state_NAME`` and an output ``next_state_NAME`` of the ONNX model. Their values at the export are in the
            bundle's ``initial_state.npz``. Without it, every run of the model starts from these values.
        assume: Whether a model that can't be captured otherwise is captured for the example inputs: with the branches
            that they take, the tensor values that Python reads, and the sizes that can't be dynamic. Each assumption
            is listed with its line in the result and in the manifest, and ``bundle.verified`` is False. With "check",
            the model has a further output, the bool ``assumptions_hold``, which is False for inputs that take other
            branches or give other values.
        inputs: The inputs to verify on instead of fresh ones; see :func:`verify`.
        seed: The seed of the fresh inputs.
        edge_sizes: Whether to verify at the sizes 0 and 1 too.
        special_values: Whether to verify on NaN, infinities and other special values too; see :func:`verify`.
        shrink: The time in seconds to search for a small failing input.
        bisect: Whether to find the first mismatching node if the verification fails.
        trace: Whether to compare the values inside the model too, for the plot of the error against the depth.
        entry: The text of the entry from which the model can be loaded again, recorded for a later ``verify``.
        time_limit: The seconds that loading the model in an engine, and each run, may take: 600 by default.
        memory_limit: The bytes that an engine's process may take (not on Windows); by default there is no limit.
        nan: "absent" for the shortest model that equals PyTorch on every input for which no value of the eager run is
            NaN; "exact" for a model that also returns what PyTorch returns for NaN, in more nodes. Operators that
            detect NaN, and everything before them, are exact in both. "auto" is "absent" unless the verification meets
            NaN. ``special_values="require"`` implies "exact".
        kernels: Which operators run opbridge's own compiled kernels: "auto" for those that ONNX nodes can express only
            as a function with loops, such as factorizations of matrices, and for ONNX Runtime alone for those that are
            at least twice as fast with one, on tensors of at least 4096 elements, if a C++ compiler is installed;
            "always" also on smaller tensors and for chains of elementwise nodes; "never" for none, so that no library
            is built unless you declared a kernel yourself.
        progress: A callback that receives the name of each stage as it begins.

    Raises:
        CaptureError: torch.export can't capture the model.
        UnsupportedOperatorError: No rung is left for some operators; all are named.
        TranslationError: A mapping fails.
        InputError: The arguments do not fit the model, or the bundle can't be written.
        EngineNotInstalledError: An engine is not installed.
        BuildError: A kernel can't be built.
    """
    from opbridge.catalog.declare.kernel_choice import checked_kernels
    from opbridge.catalog.declare.nan import ABSENT, AUTO, EXACT, checked_nan
    from opbridge.engines.versions import Versions
    from opbridge.proof.verify.modes import REQUIRE, Modes
    from opbridge.proof.verify.options import VerifyOptions
    from opbridge.proof.verify.verification import DEFAULT_SEED
    from opbridge.verbs.options import ExportOptions
    from opbridge.verbs.sources import open_source

    modes = Modes.of(edge_sizes, special_values, shrink)
    contract = EXACT if modes.special_values == REQUIRE else ABSENT if nan == AUTO else checked_nan(nan)
    checks = VerifyOptions(
        seed=DEFAULT_SEED if seed is None else seed,
        inputs=inputs,
        bisect=bisect,
        trace=trace,
        modes=modes,
    )
    options = ExportOptions(
        path,
        Versions.of(opset, ir_version),
        checks if verify else None,
        overwrite,
        with_reference,
        external_data,
        contract,
        may_become_exact=nan == AUTO,
    )
    choice = checked_kernels(kernels)
    check_destination(path, overwrite=overwrite)
    chosen = engines_named(engines, progress)
    given = opened(
        model,
        args,
        kwargs,
        dynamic_shapes,
        input_names,
        output_names,
        text=entry,
        engines=chosen,
        requested=options.requested,
        state=state,
        assume=assume,
    )
    with limited(time_limit=time_limit, memory_limit=memory_limit), exporting():
        source = open_source(given, catalog_of(given, ops, contract, choice), progress)
        try:
            return _export(source, chosen, options, progress)
        except _NanFoundError:
            return _export_exactly(source, chosen, options, progress)


class _NanFoundError(Exception):
    """A value is NaN in PyTorch, and the model assumes that there is none."""


def _export_exactly(
    source: Source, engines: Sequence[Engine], options: ExportOptions, report: Callable[[str], None]
) -> Bundle:
    """Export with NaN as in PyTorch, or without it if an engine has no operators for that."""
    from opbridge.catalog.declare.nan import EXACT

    report("a value is NaN: exporting with NaN as in PyTorch")
    lean = source.catalog
    options = dataclasses.replace(options, may_become_exact=False)
    source.catalog = dataclasses.replace(lean, nan=EXACT)
    try:
        return _export(source, engines, dataclasses.replace(options, nan=EXACT), report)
    except (TranslationError, UnsupportedOperatorError):
        source.catalog = lean
        return _export(source, engines, options, report)


def _export(source: Source, engines: Sequence[Engine], options: ExportOptions, report: Callable[[str], None]) -> Bundle:
    """Run the stages after capture in order: the ladder, the bundle, the verification."""
    from opbridge.bundle.manifest import make_manifest, make_sources
    from opbridge.bundle.model_files import convert_programs, write_models
    from opbridge.ladder.climb import climb_all
    from opbridge.ladder.findings import list_findings
    from opbridge.proof.verify.verification import OUTSIDE
    from opbridge.report.page import render_page

    source.prepare(options)
    climbed = climb_all(source.model, source.catalog, engines, options.requested, report=report)
    source.check_kernels(climbed)
    versions = {engine.name: engine.version for engine in engines}
    with TemporaryFolder() as scratch:
        # copytree copies a folder's mode, and the temporary one is private.
        converted = Path(scratch) / "converted"
        converted.mkdir()
        files = convert_programs(climbed.programs, engines, converted)
        manifest = make_manifest(
            source.text, climbed, engines, files, source.packages(climbed), source.manifest_entries()
        )

        def write(folder: Path) -> None:
            report("writing")
            shutil.copytree(converted, folder, dirs_exist_ok=True)
            write_models(folder, climbed, engines, options.external_data)
            if options.with_reference:
                source.save_reference(climbed, folder, options.external_data)
            source.save_state(folder)

        def prove(folder: Path) -> Mapping[str, Any] | None:
            if options.verify is None:
                return None
            draft = Bundle(folder, read_manifest(folder), Trust.OWN)
            verified = _verified(source, climbed, draft, engines, options.verify, report)
            if options.may_become_exact and any(case.verdict == OUTSIDE for case in verified.cases):
                raise _NanFoundError
            return verified.to_dict()

        bundle = write_bundle(
            options.path,
            manifest,
            write,
            sources=make_sources(source.file, climbed, list_findings(climbed, versions, source.captured)),
            verification=prove,
            page=render_page,
            overwrite=options.overwrite,
        )
    if climbed.onnx is not None and climbed.onnx.translated is not None:
        written(climbed.onnx.translated.model)
    return bundle


def _verified(
    source: Source,
    climbed: ClimbedAll,
    draft: Bundle,
    engines: Sequence[Engine],
    options: VerifyOptions,
    report: Callable[[str], None],
) -> Verification:
    """The verification of a bundle that is being written."""
    from opbridge.catalog.declare.nan import EXACT
    from opbridge.proof.verify.journal import Journal
    from opbridge.proof.verify.small_input import SmallInput
    from opbridge.verbs.verify import verify_bundle

    nan = draft.manifest.get("nan", EXACT)
    complete = dataclasses.replace(options, small=SmallInput(draft.path), journal=Journal(report=report), nan=nan)
    translated = climbed.onnx.translated if climbed.onnx is not None else None
    origins = translated.origins if translated is not None else {}
    return verify_bundle(source.reference(climbed), draft, engines, complete, origins, report)
