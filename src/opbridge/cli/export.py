"""``opbridge export``: export a model to a bundle and verify it against PyTorch."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from opbridge.bundle.destination import check_destination
from opbridge.capture.entry import Entry, load_entry
from opbridge.cli._options import (
    MODELS,
    Commands,
    add_bisection,
    add_command,
    add_inputs,
    add_limits,
    add_model_options,
    add_verbose,
)
from opbridge.cli._outcome import Outcome
from opbridge.engines.base import NOT_RUN
from opbridge.verbs.arguments import is_onnx
from opbridge.verbs.export import export

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = MODELS
EXAMPLE = "opbridge export examples/detector_head.py:model -o build/head"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "export", _run, help="export a model to a bundle and verify it")
    add_model_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the bundle; it is created")
    parser.add_argument(
        "--no-verify", dest="verify", action="store_false", help="write the bundle without verifying it"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing bundle")
    parser.add_argument(
        "--with-reference", action="store_true", help="save the captured program, or the ONNX model, in the bundle"
    )
    parser.add_argument(
        "--external-data",
        action="store_const",
        const=True,
        help="store the weights in a separate file (default: only above 2 GB)",
    )
    parser.add_argument(
        "--ir-version", type=int, metavar="N", help="the ONNX IR version (default: chosen for the opset and engine)"
    )
    parser.add_argument(
        "--state",
        action="store_true",
        help="make each buffer that forward changes an input state_NAME and an output next_state_NAME",
    )
    parser.add_argument(
        "--assume",
        nargs="?",
        const=True,
        default=False,
        choices=("check",),
        help="where the model can't be captured otherwise, fix the branches, values and sizes of the example inputs; "
        "check: also add an output assumptions_hold, which is false for inputs that they do not fit",
    )
    parser.add_argument(
        "--nan",
        choices=("auto", "absent", "exact"),
        default="auto",
        help="absent: a model that equals PyTorch as long as no value is NaN; exact: a longer model that is right for "
        "NaN too; auto (default): exact if the verification meets NaN",
    )
    parser.add_argument(
        "--kernels",
        choices=("auto", "never", "always"),
        default="auto",
        help="opbridge's own compiled kernels; auto (default): for factorizations of matrices, for detection, and for "
        "ONNX Runtime alone on large tensors where a kernel is at least twice as fast as ONNX nodes; always: also for "
        "small tensors and chains of elementwise nodes; never: no library is built",
    )
    add_inputs(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of the inputs for verification")
    add_bisection(parser)
    add_limits(parser)
    add_verbose(parser, "list every operator with its rung, and show all statistics of the outputs")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import read_cases
    from opbridge.report.bundle import bundle_view

    check_destination(arguments.output, overwrite=arguments.overwrite)
    progress(f"loading {arguments.entry}")
    is_model = is_onnx(arguments.entry)
    entry = Entry(arguments.entry, arguments.entry) if is_model else load_entry(arguments.entry)
    bundle = export(
        entry.model,
        entry.args,
        entry.kwargs,
        path=arguments.output,
        engines=arguments.engines,
        dynamic_shapes=entry.dynamic_shapes,
        opset=arguments.opset,
        input_names=entry.input_names,
        output_names=entry.output_names,
        verify=arguments.verify,
        ops=tuple(arguments.ops),
        overwrite=arguments.overwrite,
        with_reference=arguments.with_reference,
        external_data=arguments.external_data,
        ir_version=arguments.ir_version,
        state=arguments.state or entry.state,
        assume=arguments.assume,
        inputs=None if arguments.inputs is None else read_cases(arguments.inputs),
        seed=arguments.seed,
        edge_sizes=arguments.edge_sizes,
        special_values=arguments.special_values or False,
        shrink=arguments.shrink,
        bisect=arguments.bisect,
        trace=arguments.trace,
        entry=entry.text,
        nan=arguments.nan,
        kernels=arguments.kernels,
        progress=progress,
    )
    # An engine that can't run here is not verified, but this is not a failure; the verdict reports it.
    verdict = (bundle.verification or {}).get("verdict")
    failed = arguments.verify and verdict not in ("passed", *NOT_RUN)
    view = functools.partial(bundle_view, verbose=arguments.verbose)
    return Outcome(bundle.to_dict(), view, exit_code=1 if failed else 0)
