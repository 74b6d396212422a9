"""``opbridge set-attribute``: set or remove attributes of a node."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, pairs, plain, written
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge set-attribute build/vit/model.onnx node_layer_norm epsilon=1e-6 -o build/epsilon.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "set-attribute", _run, help="set or remove attributes of a node")
    parser.add_argument("node", metavar="NODE", help="the name of the node, or of one of its outputs")
    parser.add_argument(
        "attributes", nargs="*", metavar="NAME=VALUE", help="attributes to set: numbers, strings, or lists as JSON"
    )
    parser.add_argument(
        "--drop", type=names, default=[], metavar="A,B", help="attributes to remove, so that the default applies"
    )


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.set_attributes import set_attributes

    attributes = {name: plain(text) for name, text in pairs(arguments.attributes, "axis=1").items()}
    if not attributes and not arguments.drop:
        raise InputError("There is no attribute to set or remove.", fix="pass, for example, axis=1, or --drop axis.")
    return written(
        arguments,
        progress,
        lambda: set_attributes(arguments.model, arguments.node, attributes, drop=arguments.drop),
    )
