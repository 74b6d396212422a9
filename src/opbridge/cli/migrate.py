"""``opbridge migrate``: convert an old export script to the current API."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opbridge.cli._options import OLD_CODE, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OLD_CODE
EXAMPLE = "opbridge migrate examples/tutorial/old/clamp_swish.py"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(
        commands,
        "migrate",
        _run,
        help="convert an old export script to the current API",
    )
    parser.add_argument("file", metavar="FILE", help="the Python file to convert")
    parser.add_argument("-w", "--write", action="store_true", help="overwrite the file instead of printing the result")
    parser.add_argument(
        "--arguments",
        default="",
        metavar="TEXT",
        help="the command-line arguments with which the script is run",
    )
    parser.add_argument("--no-run", action="store_true", help="convert without running the script")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.legacy.migrate import migrate
    from opbridge.legacy.migrate.check import checked, unchecked
    from opbridge.legacy.migrate.migration import write
    from opbridge.report.legacy import migration_view

    migration = migrate(arguments.file)
    if arguments.no_run:
        migration = unchecked(migration, "--no-run")
    elif migration.converted:
        progress("running the script and the new source")
        migration = checked(migration, shlex.split(arguments.arguments))
    exit_code = 1 if migration.left or migration.problem else 0
    if not arguments.write:
        return Outcome(migration.to_dict(), _printed, exit_code)
    if not migration.problem:
        write(migration)
    return Outcome(migration.to_dict(), migration_view, exit_code)


def _printed(data: Mapping[str, Any]) -> Iterable[str]:
    """Print the new source alone, so that it can be piped; everything else goes to stderr."""
    import sys

    for item in data["not_run"]:
        print(f"{data['file']}:{item['line']}: {item['name']} is rewritten, but was not run.", file=sys.stderr)
    if data["reason"]:
        print(f"not run: {data['reason']}.", file=sys.stderr)
    if data["problem"]:
        print(f"The new source is not right: {data['problem']}.", file=sys.stderr)
    for item in data["left"]:
        print(f"{data['file']}:{item['line']}: {item['name']} is left unchanged: {item['detail']}", file=sys.stderr)
    if data["way_out"]:
        print(data["way_out"], file=sys.stderr)
    sys.stdout.write(data["text"])
    return ()
