"""``opbridge inline``: replace function calls with the nodes of the functions."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, names, written

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge inline build/halves.onnx -o build/inlined.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "inline", _run, help="replace function calls with the nodes of the functions")
    parser.add_argument("--functions", type=names, metavar="D::A,D::B", help="the functions to inline (default: all)")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.inline import inline

    return written(arguments, progress, lambda: inline(arguments.model, arguments.functions))
