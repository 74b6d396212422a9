"""``opbridge join``: join two models into one."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, pairs, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge join build/first.onnx build/second.onnx --map add=add -o build/joined.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    models = {"first": "the model whose outputs are connected", "second": "the model whose inputs are connected"}
    parser = add_surgery(
        commands, "join", _run, help="connect outputs of one model with inputs of another", models=models
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OUTPUT=INPUT",
        help="an output of the first model and the input of the second that it feeds (default: those with equal names)",
    )


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.join import join

    mapping = pairs(arguments.map, "output=input") or None
    return written(arguments, progress, lambda: join(arguments.first, arguments.second, mapping))
