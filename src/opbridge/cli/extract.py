"""``opbridge extract``: extract a part of a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge extract build/vit/model.onnx --outputs add -o build/first.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "extract", _run, help="extract the part of a model between given values")
    parser.add_argument(
        "--inputs", type=names, metavar="A,B", help="the values that become inputs (default: the model's inputs)"
    )
    parser.add_argument(
        "--outputs", type=names, metavar="A,B", help="the values that become outputs (default: the model's outputs)"
    )


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.extract import extract

    return written(arguments, progress, lambda: extract(arguments.model, arguments.inputs, arguments.outputs))
