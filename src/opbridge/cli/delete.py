"""``opbridge delete``: delete nodes, inputs and outputs."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, written
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge delete build/relu.onnx --nodes Relu_on_add -o build/without.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "delete", _run, help="delete nodes, outputs and unused inputs")
    parser.add_argument(
        "--nodes",
        type=names,
        default=[],
        metavar="A,B",
        help="nodes to delete; their consumers read the node's input instead",
    )
    parser.add_argument(
        "--outputs", type=names, default=[], metavar="A,B", help="outputs to delete, with the nodes that only they need"
    )
    parser.add_argument("--inputs", type=names, default=[], metavar="A,B", help="unused inputs to delete")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.delete import delete

    if not (arguments.nodes or arguments.outputs or arguments.inputs):
        raise InputError("There is nothing to delete.", fix="pass --nodes, --outputs or --inputs.")
    return written(
        arguments,
        progress,
        lambda: delete(arguments.model, nodes=arguments.nodes, outputs=arguments.outputs, inputs=arguments.inputs),
    )
