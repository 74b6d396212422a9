"""``opbridge verify``: compare a bundle with PyTorch on fresh inputs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from opbridge.cli._options import (
    ENTRY_HELP,
    PROOF,
    Commands,
    add_bisection,
    add_command,
    add_engine,
    add_inputs,
    add_limits,
    add_ops,
    add_trust,
    add_verbose,
)
from opbridge.cli._outcome import Outcome
from opbridge.verbs.verify import verify

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge verify build/head --seed 7 --edge-sizes --special-values"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands,
        "verify",
        _run,
        help="compare a bundle with PyTorch, or with the original ONNX model, on fresh inputs",
    )
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("--reference", metavar="ENTRY", help=f"{ENTRY_HELP} (default: the bundle's own)")
    add_inputs(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of the inputs")
    add_bisection(parser)
    parser.add_argument("--rtol", type=float, help="a relative tolerance instead of the computed one")
    parser.add_argument("--atol", type=float, help="an absolute tolerance instead of the computed one")
    parser.add_argument(
        "--timings", action="store_true", help="also measure the time per node in the engine and in PyTorch"
    )
    parser.add_argument(
        "--assume", action="store_true", help="accept the assumptions of a bundle that was exported with --assume"
    )
    add_engine(parser, default=None)
    add_limits(parser)
    add_ops(parser)
    add_trust(parser)
    add_verbose(parser, "show all statistics of the outputs")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import read_cases
    from opbridge.report.verification import verification_view

    inputs = None if arguments.inputs is None else read_cases(arguments.inputs)
    progress(f"reading {arguments.bundle}")
    verification = verify(
        arguments.bundle,
        reference=arguments.reference,
        inputs=inputs,
        engines=arguments.engines,
        seed=arguments.seed,
        edge_sizes=arguments.edge_sizes,
        special_values=arguments.special_values or False,
        shrink=arguments.shrink,
        bisect=arguments.bisect,
        trace=arguments.trace,
        timings=arguments.timings,
        rtol=arguments.rtol,
        atol=arguments.atol,
        progress=progress,
        ops=tuple(arguments.ops),
        trust=arguments.trust,
    )
    passed = verification.passed or (arguments.assume and verification.verdict == "passed")
    view = functools.partial(verification_view, verbose=arguments.verbose)
    return Outcome(verification.to_dict(), view, exit_code=0 if passed else 1)
