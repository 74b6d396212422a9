"""``opbridge run-script``: an old export script as it is, with its symbolic functions honoured."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["register"]


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands, "run-script", _run, help="run an old export script, its symbolic functions honoured, and list them"
    )
    parser.add_argument("--report", metavar="FILE", help="write what was bridged to a JSON file instead of the screen")
    parser.add_argument("script", metavar="SCRIPT", help="the Python file; options of ours stand before it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its own arguments")
    parser.set_defaults(on_screen=True)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from pathlib import Path

    from opbridge.bundle import to_json
    from opbridge.legacy.run_script import run_script
    from opbridge.report.legacy import script_view

    run = run_script(arguments.script, arguments.arguments)
    if arguments.report is None:
        return Outcome(run.to_dict(), script_view, run.exit_code)
    Path(arguments.report).write_text(to_json(run.to_dict()), encoding="utf-8")
    return Outcome(run.to_dict(), lambda data: (), run.exit_code)
