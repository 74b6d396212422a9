"""``opbridge migrate``: convert an old export script to the current API."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opbridge.cli._options import OLD_CODE, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["GROUP", "register"]

GROUP = OLD_CODE


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


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.legacy.migrate import migrate
    from opbridge.legacy.migrate.migration import write
    from opbridge.report.legacy import migration_view

    migration = migrate(arguments.file)
    exit_code = 1 if migration.left else 0
    if not arguments.write:
        return Outcome(migration.to_dict(), _printed, exit_code)
    write(migration)
    return Outcome(migration.to_dict(), migration_view, exit_code)


def _printed(data: Mapping[str, Any]) -> Iterable[str]:
    """Print the new source alone, so that it can be piped; the parts left unchanged go to stderr."""
    import sys

    for item in data["left"]:
        print(f"{data['file']}:{item['line']}: {item['name']} is left unchanged: {item['detail']}", file=sys.stderr)
    if data["way_out"]:
        print(data["way_out"], file=sys.stderr)
    sys.stdout.write(data["text"])
    return ()
