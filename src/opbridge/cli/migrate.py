"""``opbridge migrate``: an old export script in today's form."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opbridge.cli._options import Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["register"]


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "migrate", _run, help="convert an old export script, and list what it can't convert")
    parser.add_argument("file", metavar="FILE", help="the Python file")
    parser.add_argument("-w", "--write", action="store_true", help="replace the file instead of printing it")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.legacy.migrate import migrate
    from opbridge.legacy.migrate.migration import write
    from opbridge.report.legacy import migration_view

    migration = migrate(arguments.file)
    if not arguments.write:
        return Outcome(migration.to_dict(), _printed)
    write(migration)
    return Outcome(migration.to_dict(), migration_view)


def _printed(data: Mapping[str, Any]) -> Iterable[str]:
    """The new source and nothing else, so that it can be piped; what is left goes to stderr."""
    import sys

    for item in data["left"]:
        print(f"{data['file']}:{item['line']}: {item['name']} stays: {item['detail']}", file=sys.stderr)
    if data["way_out"]:
        print(data["way_out"], file=sys.stderr)
    sys.stdout.write(data["text"])
    return ()
