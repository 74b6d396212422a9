"""``opbridge compare``: check whether two models compute the same, and find the first mismatching node."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import PROOF, Commands, add_command, add_engine, add_limits, add_ops, add_trust
from opbridge.cli._outcome import Outcome
from opbridge.verbs.compare import compare

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = PROOF
EXAMPLE = "opbridge compare build/head/model.onnx build/head13.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "compare", _run, help="compare two models on fresh inputs; exit code 0 if they compute the same"
    )
    parser.add_argument(
        "first", metavar="A", help="file.py:function, a model.pt2, a model.onnx from any exporter, or a bundle"
    )
    parser.add_argument(
        "second", metavar="B", nargs="?", help="the second model (default: A on the second of two engines)"
    )
    parser.add_argument(
        "--inputs", nargs="+", metavar="FILE.npz", help="inputs by name, one file per case (default: made by --seed)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the seed of the inputs")
    parser.add_argument("--rtol", type=float, help="a relative tolerance instead of the computed one")
    parser.add_argument("--atol", type=float, help="an absolute tolerance instead of the computed one")
    add_engine(
        parser,
        default=None,
        shown="eager for an entry, a bundle's own, else onnxruntime; two names are for A and for B; eager and "
        "program are PyTorch with the module and with the captured program",
    )
    add_limits(parser)
    add_ops(parser)
    add_trust(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli._arrays import read_arrays
    from opbridge.report.compare import comparison_view

    inputs = None if arguments.inputs is None else [read_arrays([file]) for file in arguments.inputs]
    found = compare(
        arguments.first,
        arguments.second,
        engines=arguments.engines or (),
        inputs=inputs,
        seed=arguments.seed,
        rtol=arguments.rtol,
        atol=arguments.atol,
        ops=tuple(arguments.ops),
        trust=arguments.trust,
        progress=progress,
    )
    return Outcome(found.to_dict(), comparison_view, 0 if found.equal else 1)
