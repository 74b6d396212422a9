"""``opbridge diff``: list the differences between two models."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge diff build/vit/model.onnx build/joined.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "diff", _run, help="list the differences between two models; exit code 0 if there are none"
    )
    parser.add_argument("first", metavar="A.onnx", help="the first model")
    parser.add_argument("second", metavar="B.onnx", help="the second model")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.report.surgery import difference_view
    from opbridge.surgery.verbs.diff import diff

    progress("comparing")
    found = diff(arguments.first, arguments.second)
    return Outcome(found.to_dict(), difference_view, 0 if found.same else 1)
