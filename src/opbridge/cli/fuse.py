"""``opbridge fuse``: replace nodes that compute an operator's body with one custom node."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands, add_ops
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, written
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge fuse build/vit/model.onnx examples::attention --ops examples/vit_attention.py -o build/fused.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(
        commands, "fuse", _run, help="replace the nodes that compute an operator's body with one custom node"
    )
    parser.add_argument("operator", metavar="OPERATOR", help="namespace::name, declared in a file given with --ops")
    parser.add_argument("--at", type=names, metavar="A,B", help="fuse only the matches that produce these values")
    parser.add_argument(
        "--inputs", type=names, metavar="A,B", help="with --outputs: replace the nodes between these values instead"
    )
    parser.add_argument(
        "--outputs", type=names, metavar="A,B", help="the values that the custom node produces; requires --inputs"
    )
    add_ops(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    def change():  # type: ignore[no-untyped-def]
        if arguments.inputs is not None and arguments.outputs is not None:
            from opbridge.surgery.verbs.collapse import collapse

            return collapse(arguments.model, arguments.operator, arguments.inputs, arguments.outputs)
        from opbridge.surgery.verbs.fuse import fuse

        return fuse(arguments.model, arguments.operator, at=arguments.at, ops=tuple(arguments.ops))

    if (arguments.inputs is None) != (arguments.outputs is None):
        raise InputError("--inputs and --outputs must be given together.", fix="pass both options, or neither.")
    return written(arguments, progress, change)
