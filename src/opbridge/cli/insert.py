"""``opbridge insert``: insert a node."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, pairs, plain, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge insert build/vit/model.onnx Relu --on add -o build/relu.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "insert", _run, help="insert a node after a value")
    parser.add_argument("operator", metavar="OPERATOR", help="the operator, such as Relu or domain::Op")
    parser.add_argument(
        "--on", required=True, metavar="VALUE", help="the value; its consumers read the node's output instead"
    )
    parser.add_argument("--inputs", type=names, metavar="A,B", help="the inputs of the node (default: the value)")
    parser.add_argument("--only", type=names, metavar="A,B", help="the nodes that read it (default: all)")
    parser.add_argument(
        "--attribute", action="append", default=[], metavar="NAME=VALUE", help="an attribute of the node (repeatable)"
    )
    parser.add_argument("--name", metavar="NAME", help="the node's name")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.insert import insert

    attributes = {name: plain(text) for name, text in pairs(arguments.attribute, "axis=1").items()}
    return written(
        arguments,
        progress,
        lambda: insert(
            arguments.model,
            arguments.operator,
            arguments.on,
            inputs=arguments.inputs,
            attributes=attributes,
            only=arguments.only,
            name=arguments.name,
        ),
    )
