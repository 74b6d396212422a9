"""``opbridge rename``: rename values, nodes, dimensions and operators."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, pairs, written
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge rename build/vit/model.onnx --value x=tokens --node node_add=residual -o build/renamed.onnx"

_KINDS = {
    "value": "an input, an output, a weight, or a value that a node computes",
    "node": "a node",
    "dimension": "a named dimension",
    "operator": "the operator of custom nodes, domain::Op",
}


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "rename", _run, help="rename values, nodes, dimensions and custom operators")
    for kind, help_ in _KINDS.items():
        parser.add_argument(f"--{kind}", action="append", default=[], metavar="OLD=NEW", help=help_)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.rename import rename

    given = {kind: pairs(getattr(arguments, kind), "old=new") for kind in _KINDS}
    if not any(given.values()):
        raise InputError("There is nothing to rename.", fix="pass, for example, --value old=new.")
    return written(
        arguments,
        progress,
        lambda: rename(
            arguments.model,
            given["value"],
            nodes=given["node"],
            dimensions=given["dimension"],
            operators=given["operator"],
        ),
    )
