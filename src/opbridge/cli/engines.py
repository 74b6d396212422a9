"""``opbridge engines``: every known engine, its version, what it can do here, and how to install it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.engines.listing import list_engines
from opbridge.report.engines import engines_markdown, engines_view

__all__ = ["register"]


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "engines", _run, help="list the engines, what each can do here, how to install it")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    progress("asking the engines")
    data = {"engines": [engine.to_dict() for engine in list_engines()]}
    return Outcome(data, engines_markdown if arguments.markdown else engines_view)
