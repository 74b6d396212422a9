"""The public verbs. What they do for a PyTorch model is in ``torch_flow.py``, for an ONNX model in ``onnx_flow.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.bundle.bundle import VERIFICATION, Bundle, check_destination, read_bundle, write_side_file
from opbridge.catalog.declare.catalog import Catalog, Ops
from opbridge.engines import chosen as engines_named
from opbridge.engines.process.limits import limited
from opbridge.errors import InputError
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.verification import DEFAULT_SEED, Verification
from opbridge.report.written import write_report
from opbridge.verbs.arguments import (
    declared_catalog,
    is_onnx,
    refuse_torch_engines,
    refuse_torch_options,
    resolved_entry,
)

if TYPE_CHECKING:
    from opbridge.proof.verify.journal import Journal
    from opbridge.proof.verify.modes import Given as Inputs
    from opbridge.proof.verify.modes import Modes
    from opbridge.verbs.diagnosis import Diagnosis

__all__ = ["diagnose", "export", "verify"]


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
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, the text of an entry; or an ONNX model:
            the path of an ``.onnx`` file, an ``onnx.ModelProto``, an ``onnx_ir.Model``.
        args: Example inputs.
        kwargs: Example inputs by keyword.
        engines: The engines to ask for kernels: "onnxruntime" is the installed one, "onnxruntime==1.16.3" that version
            in an environment of its own, which is made on first use.
        dynamic_shapes: As ``torch.export.export`` takes it; a dimension may also be named by a string.
        opset: The version of the standard ONNX domain to use, 11 or newer; by default the lowest that serves every
            operator and that the engines take.
        ops: Operator files, directories, modules or decorated functions besides the catalog.
        progress: Told each stage that begins.

    Raises:
        InputError: The arguments do not fit the model.
        EngineNotInstalledError: An engine is not installed.
    """
    from opbridge.engines.versions import Versions, check_versions

    if is_onnx(model):
        refuse_torch_options(dynamic_shapes=dynamic_shapes)
        from opbridge.verbs.onnx_flow import diagnose_onnx, load_onnx

        given = load_onnx(model, args, kwargs)
        chosen = engines_named(engines, progress)
        refuse_torch_engines(chosen)
        check_versions(chosen, Versions(opset))
        return diagnose_onnx(given, chosen, declared_catalog(ops), Versions(opset), progress)
    from opbridge.verbs.diagnose import diagnose_model

    entry = resolved_entry(model, args, kwargs, dynamic_shapes)
    chosen = engines_named(engines, progress)
    check_versions(chosen, Versions(opset))
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
    progress: Callable[[str], None] = _quiet,
) -> Bundle:
    """Bring a model to the engines: climb the ladder for every operator, write a bundle, and prove it.

    Args:
        model: An ``nn.Module``, a function of tensors, an ``ExportedProgram``, or the text of an entry
            (``"file.py:function"``). Or an ONNX model: the path of an ``.onnx`` file, an ``onnx.ModelProto``, an
            ``onnx_ir.Model``; it enters the flow at ``adapt``, and is verified against itself.
        args: Example inputs; for an ONNX model arrays, and not needed.
        kwargs: Example inputs by keyword.
        path: The bundle, a folder that is made. It appears whole or not at all.
        engines: The engines it is for; "onnxruntime==1.16.3" is that version in an environment of its own.
        dynamic_shapes: As ``torch.export.export`` takes it; a dimension may also be named by a string.
        opset: The version of the standard ONNX domain, 11 or newer; by default the lowest that serves every operator,
            or the newest that the engine takes, if that is lower.
        input_names: Names of the inputs in the ONNX model.
        output_names: Names of its outputs.
        verify: Compare the bundle with PyTorch on fresh inputs. A failed verification still writes the bundle, with
            ``bundle.verified`` False.
        ops: Operator files, directories, modules or decorated functions besides the catalog.
        overwrite: Replace a bundle that is there. Nothing else is ever replaced.
        with_reference: Save the captured program, or the ONNX model, in the bundle, so that it can be verified without
            the model's source.
        external_data: Store the weights in a file of their own; by default only above 2 GB.
        ir_version: The version of the ONNX IR: by default 10, or what the opset or the engine needs. Below 10 function
            overloads become names, below 8 functions are inlined.
        inputs: What it is verified on; see :func:`verify`, also for the next four.
        seed: Of the fresh inputs.
        edge_sizes: Sizes 0 and 1 too.
        special_values: NaN, infinities and the like too.
        shrink: Seconds for a small failing input.
        bisect: Where the verification fails, find the first node at which the engine departs.
        trace: Compare the values inside the model too, for the plot of the error against the depth.
        entry: The text under which the model can be found again, recorded for a later ``verify``.
        time_limit: The seconds that loading the model in an engine, and each run, may take: 600 by default.
        memory_limit: The bytes that an engine's process may take (not on Windows); by default there is no limit.
        progress: Told each stage that begins.

    Raises:
        CaptureError: torch.export can't capture the model.
        UnsupportedOperatorError: No rung is left for some operators; all are named.
        TranslationError: A mapping fails.
        InputError: The arguments do not fit, or the bundle can't be written.
        EngineNotInstalledError: An engine is not installed.
    """
    from opbridge.engines.versions import Versions, check_versions

    modes = _modes(edge_sizes, special_values, shrink)
    check_destination(path, overwrite=overwrite)
    asked = Versions(opset, ir_version)
    if is_onnx(model):
        refuse_torch_options(dynamic_shapes=dynamic_shapes, input_names=input_names, output_names=output_names)
        from opbridge.verbs.onnx_flow import export_onnx, load_onnx

        given = load_onnx(model, args, kwargs)
        chosen = engines_named(engines, progress)
        refuse_torch_engines(chosen)
        check_versions(chosen, asked, own_opset=given.opset)
        with limited(time_limit=time_limit, memory_limit=memory_limit):
            return export_onnx(
                given,
                chosen,
                declared_catalog(ops),
                asked,
                path=path,
                verify=verify,
                overwrite=overwrite,
                with_reference=with_reference,
                external_data=external_data,
                inputs=inputs,
                modes=modes,
                seed=seed,
                bisect=bisect,
                trace=trace,
                report=progress,
            )
    from opbridge.verbs.torch_flow import export_torch

    chosen = engines_named(engines, progress)
    check_versions(chosen, asked)
    with limited(time_limit=time_limit, memory_limit=memory_limit):
        return export_torch(
            resolved_entry(model, args, kwargs, dynamic_shapes, input_names, output_names, text=entry),
            chosen,
            Catalog.load(ops),
            asked,
            path=path,
            verify=verify,
            overwrite=overwrite,
            with_reference=with_reference,
            external_data=external_data,
            inputs=inputs,
            modes=modes,
            seed=seed,
            bisect=bisect,
            trace=trace,
            report=progress,
        )


def verify(
    path: str | Path,
    *,
    reference: Any = None,
    inputs: Inputs | None = None,
    engines: Sequence[str] | None = None,
    seed: int | None = None,
    edge_sizes: bool = False,
    special_values: bool | str = False,
    shrink: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    bisect: bool = True,
    trace: bool = False,
    timings: bool = False,
    ops: Ops = (),
    time_limit: float | None = None,
    memory_limit: int | None = None,
    progress: Callable[[str], None] = _quiet,
) -> Verification:
    """Prove a bundle equal to PyTorch again, on fresh inputs, and record the result in it.

    Args:
        path: The bundle.
        reference: What to compare with: the text of an entry, or an ``Entry``; by default the program saved in the
            bundle, else the entry that the bundle records. For a bundle made of an ONNX model, that model.
        inputs: Inputs by name, one mapping per case, instead of fresh ones; a mapping of such mappings names the cases.
        engines: By default every engine that the bundle is for.
        seed: Of the fresh inputs.
        edge_sizes: Try every dynamic dimension at 0 and at 1 too, and at odd and even sizes.
        special_values: Compare what NaN, infinities, -0, subnormal and extreme numbers in the inputs become too: True
            or "report" tells what differs, "require" makes the verdict depend on it.
        shrink: Seconds for finding a small input on which the first failing case fails too. It is written into the
            bundle, as ``failing_input.npz``.
        rtol: A relative tolerance instead of the budget that is worked out.
        atol: An absolute tolerance likewise.
        bisect: As for ``export``.
        trace: Likewise.
        timings: Time the nodes too, in the engines that tell and in PyTorch.
        ops: As for ``export``.
        time_limit: The seconds that loading the model in an engine, and each run, may take: 600 by default.
        memory_limit: The bytes that an engine's process may take (not on Windows); by default there is no limit.
        progress: Told each stage that begins.

    Raises:
        InputError: The bundle is damaged, the reference is missing, or it has other weights than the bundle.
    """
    from opbridge.proof.verify.options import VerifyOptions
    from opbridge.proof.verify.small_input import SmallInput

    modes = _modes(edge_sizes, special_values, shrink)
    bundle = read_bundle(path)
    small = SmallInput(bundle.path)
    recorded_names = [name for model in bundle.manifest["models"] for name in model["engines"]]
    chosen = engines_named(list(engines) if engines else recorded_names, progress)
    options = VerifyOptions(
        seed=DEFAULT_SEED if seed is None else seed,
        inputs=inputs,
        rtol=rtol,
        atol=atol,
        bisect=bisect,
        trace=trace,
        timings=timings,
        modes=modes,
        small=small,
        journal=Journal.of_bundle(bundle, chosen, inputs, (seed, rtol, atol), progress),
    )
    if "original" in bundle.manifest:
        from opbridge.verbs.onnx_flow import verify_onnx_bundle

        progress("verifying")
        with limited(time_limit=time_limit, memory_limit=memory_limit):
            verified = verify_onnx_bundle(bundle, reference, declared_catalog(ops), chosen, options)
        return _recorded(bundle, verified, options.journal)
    from opbridge.verbs.torch_flow import verify_torch_bundle

    with limited(time_limit=time_limit, memory_limit=memory_limit):
        verified = verify_torch_bundle(bundle, reference, ops, chosen, options, report=progress)
    return _recorded(bundle, verified, options.journal)


def _modes(edge_sizes: bool, special_values: bool | str, shrink: float | None) -> Modes:
    from opbridge.proof.verify.modes import Modes

    return Modes.of(edge_sizes, special_values, shrink)


def _recorded(bundle: Bundle, verified: Verification, journal: Journal) -> Verification:
    """Write down what was found in the bundle, with the page that shows it; where that fails, the error says it."""
    try:
        write_side_file(bundle, VERIFICATION, verified.to_dict())
        write_report(bundle)
    except InputError as error:
        cases = f"{len(verified.cases)} case{'' if len(verified.cases) == 1 else 's'}"
        raise InputError(
            f"{verified.engine}: {verified.verdict} on {cases}, but this can't be recorded: {error.message}",
            fix=error.fix,
            details=verified.summary(),
        ) from error
    journal.finish()
    return verified
