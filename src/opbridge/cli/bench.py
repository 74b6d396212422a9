"""``opbridge bench``: measure a bundle on its engines and in eager PyTorch, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.bundle.bundle import read_bundle
from opbridge.cli._options import (
    PROOF,
    Commands,
    add_command,
    add_engine,
    add_limits,
    add_ops,
    add_trust,
)
from opbridge.cli._outcome import Outcome
from opbridge.verbs.bench import bench

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge bench build/head"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "bench", _run, help="measure latency, throughput and memory on each engine and in PyTorch"
    )
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="an input, or a FILE.npz that contains the inputs by name (repeatable; default: the example inputs)",
    )
    parser.add_argument(
        "--threads",
        type=_counts,
        default=(),
        metavar="N[,N2]",
        help="the numbers of threads to measure (default: that of each engine)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="the time to run each engine for (default: 2)", metavar="S"
    )
    parser.add_argument(
        "--reference", metavar="ENTRY", help="the model that PyTorch runs, as for export (default: the bundle's own)"
    )
    add_engine(parser, default=None)
    add_limits(parser)
    add_ops(parser)
    add_trust(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import fit, read_arrays
    from opbridge.report.bench import benchmark_view

    inputs = read_arrays(arguments.inputs) if arguments.inputs else None
    if inputs is not None:
        inputs = fit(inputs, read_bundle(arguments.bundle, trust=arguments.trust).inputs)
    found = bench(
        arguments.bundle,
        engines=arguments.engines,
        inputs=inputs,
        threads=arguments.threads,
        seconds=arguments.seconds,
        reference=arguments.reference,
        ops=tuple(arguments.ops),
        trust=arguments.trust,
        progress=progress,
    )
    return Outcome(found.to_dict(), benchmark_view)


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(count) for count in text.split(","))
    except ValueError:
        counts = (0,)
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positive numbers, such as 1,2")
    return counts
