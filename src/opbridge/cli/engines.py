"""``opbridge engines``: list the engines, their versions and features, and how to install them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ENVIRONMENT, Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.engines.listing import list_engines
from opbridge.report.engines import engines_markdown, engines_view

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ENVIRONMENT
EXAMPLE = "opbridge engines"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "engines", _run, help="list the engines, their features on this machine, and how to install them"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    progress("asking the engines")
    data = {"engines": [engine.to_dict() for engine in list_engines()]}
    return Outcome(data, engines_markdown if arguments.markdown else engines_view)
