"""``verify``: compare a bundle with its reference again, and record the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbridge.bundle.bundle import Bundle, read_bundle
from opbridge.bundle.checks import VERIFICATION
from opbridge.bundle.trust import Consent, Trust
from opbridge.bundle.write import write_side_file
from opbridge.catalog.declare.catalog import Ops
from opbridge.engines import chosen as engines_named
from opbridge.engines.base import Engine
from opbridge.engines.process.limits import limited
from opbridge.errors import InputError
from opbridge.proof.verify.journal import Journal
from opbridge.proof.verify.verification import DEFAULT_SEED, Verification
from opbridge.report.written import write_report
from opbridge.verbs.arguments import quiet

if TYPE_CHECKING:
    from opbridge.proof.verify.modes import Given as Inputs
    from opbridge.proof.verify.options import VerifyOptions
    from opbridge.torch_graph.origins import Origin
    from opbridge.verbs.references import BundleReference

__all__ = ["verify", "verify_bundle"]

_NO_KERNELS = "the bundle was not made by you on this machine: its kernels were not run; --trust (trust=True) runs them"


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
    trust: Consent = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    progress: Callable[[str], None] = quiet,
) -> Verification:
    """Compare a bundle with PyTorch on fresh inputs, and record the result in the bundle.

    Args:
        path: The bundle.
        reference: The model to compare with: the text of an entry, or what its function returns, such as
            ``(module, args)``. By default the program saved in the bundle, otherwise the entry recorded in the bundle;
            for a bundle made from an ONNX model, that model.
        inputs: Inputs by name, one mapping per case, instead of fresh ones; a mapping of such mappings names the cases.
        engines: The engines to verify; by default all engines of the bundle.
        seed: The seed of the fresh inputs.
        edge_sizes: Whether to verify every dynamic dimension at 0, at 1, and at odd and even sizes too.
        special_values: Whether to compare the results for NaN, infinities, -0, subnormal and extreme numbers too: True
            or "report" reports the differences, "require" makes the verdict depend on them.
        shrink: The time in seconds to search for a small input on which the first failing case fails too. The input is
            written into the bundle, as ``failing_input.npz``.
        rtol: A relative tolerance instead of the computed one.
        atol: An absolute tolerance instead of the computed one.
        bisect: Whether to find the first mismatching node if a case fails.
        trace: Whether to compare the values inside the model too, for the plot of the error against the depth.
        timings: Whether to measure the time of each node too, in PyTorch and in the engines that can profile.
        ops: Operator files, directories, modules or decorated functions in addition to the catalog.
        trust: Whether you trust whoever made the bundle, or the public key (a PEM file) that it must be signed with.
            Without it, if you did not export the bundle on this machine, nothing of it that can run code is used:
            neither its kernels, nor its saved program, nor the entry that it names.
        time_limit: The seconds that loading the model in an engine, and each run, may take: 600 by default.
        memory_limit: The bytes that an engine's process may take (not on Windows); by default there is no limit.
        progress: A callback that receives the name of each stage as it begins.

    Raises:
        InputError: The bundle is damaged, the reference is missing, or it has other weights than the bundle; or the
            verification would run code of a bundle from somebody else.
    """
    from opbridge.catalog.declare.nan import EXACT
    from opbridge.proof.verify.modes import Modes
    from opbridge.proof.verify.options import VerifyOptions
    from opbridge.proof.verify.small_input import SmallInput
    from opbridge.torch_graph.origins import Origin
    from opbridge.verbs.references import find_reference

    modes = Modes.of(edge_sizes, special_values, shrink)
    bundle = read_bundle(path, trust=trust)
    chosen = engines_named(list(engines) if engines else bundle.engines(), progress)
    options = VerifyOptions(
        seed=DEFAULT_SEED if seed is None else seed,
        inputs=inputs,
        rtol=rtol,
        atol=atol,
        bisect=bisect,
        trace=trace,
        timings=timings,
        modes=modes,
        small=SmallInput(bundle.path),
        journal=Journal.of_bundle(bundle, chosen, inputs, (seed, rtol, atol), progress),
        nan=bundle.manifest.get("nan", EXACT),
    )
    origins = {name: Origin(*place) for name, place in bundle.sources.get("values", {}).items()}
    with limited(time_limit=time_limit, memory_limit=memory_limit):
        found = find_reference(bundle, reference, ops, progress)
        verified = verify_bundle(found, bundle, chosen, options, origins, progress)
    _record(bundle, verified)
    options.journal.finish()
    return verified


def verify_bundle(
    reference: BundleReference,
    bundle: Bundle,
    engines: Sequence[Engine],
    options: VerifyOptions,
    origins: Mapping[str, Origin],
    report: Callable[[str], None],
) -> Verification:
    """Verify a bundle on every engine: with its kernels and, if every node has a function body, without them.

    Args:
        reference: The reference that the bundle is compared with.
        bundle: The bundle.
        engines: The engines.
        options: The options of the verification.
        origins: The origins in the captured graph of the ONNX model's values, by name.
        report: A callback that receives the name of each stage as it begins.
    """
    from opbridge.proof.verify.joined import joined, not_run, with_note
    from opbridge.proof.verify.timing import timed
    from opbridge.verbs.references import BundleRun, verify_run

    report("verifying")
    results = []
    for engine in engines:
        file = bundle.loadable(engine)
        for label, libraries in bundle.runs(engine.name):
            if engine.not_run is not None:
                results.append(not_run(label, engine.not_run, options.seed))
            else:
                result = verify_run(reference, BundleRun(engine, label, file, libraries, origins), options)
                unused = bundle.trust is Trust.NONE and bundle.kernels(engine.name) is not None
                results.append(with_note(result, _NO_KERNELS) if unused else result)
    if options.timings:
        report("timing")
        feeds = reference.example_feeds(options)
        results = timed(results, bundle, engines, feeds, reference.call_times(feeds))
    return joined(results)


def _record(bundle: Bundle, verified: Verification) -> None:
    """Write the result and the report into the bundle; if that fails, the error includes the result."""
    try:
        inputs = {case.failing_input for case in verified.cases if case.failing_input}
        write_side_file(bundle, VERIFICATION, verified.to_dict(), evidence=inputs)
        write_report(bundle)
    except InputError as error:
        cases = f"{len(verified.cases)} case{'' if len(verified.cases) == 1 else 's'}"
        raise InputError(
            f"{verified.engine}: {verified.verdict} on {cases}, but this can't be recorded: {error.message}",
            fix=error.fix,
            details=verified.summary(),
        ) from error
