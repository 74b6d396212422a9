"""``opbridge reduce``: find the smallest model that still fails, with a script for a bug report."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import PROOF, Commands, add_command, add_engine, add_ops, add_trust
from opbridge.cli._outcome import Outcome
from opbridge.verbs.reduce import reduce

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge reduce build/unknown.onnx -o build/small"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "reduce", _run, help="find the smallest model that still fails, and write a script that reproduces it"
    )
    parser.add_argument("model", metavar="MODEL", help="a bundle, a model.onnx, or an entry that can't be exported")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to create")
    parser.add_argument(
        "--reference", metavar="ENTRY", help="the model that a bundle is compared with (default: the bundle's own)"
    )
    parser.add_argument(
        "--inputs",
        nargs="+",
        metavar="FILE.npz",
        help="inputs on which the model fails, one file per case (default: fresh inputs)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of fresh inputs")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S", help="seconds after which to stop (default: 600)"
    )
    add_engine(parser, default=None, several=False, shown="the bundle's first, else onnxruntime")
    add_ops(parser)
    add_trust(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import read_arrays
    from opbridge.report.reduce import reduction_view

    inputs = None if arguments.inputs is None else [read_arrays([file]) for file in arguments.inputs]
    found = reduce(
        arguments.model,
        path=arguments.output,
        engine=arguments.engine,
        inputs=inputs,
        seed=arguments.seed,
        reference=arguments.reference,
        ops=tuple(arguments.ops),
        trust=arguments.trust,
        time_limit=arguments.time_limit,
        progress=progress,
    )
    return Outcome(found.to_dict(), reduction_view)
