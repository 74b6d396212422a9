"""The command line: every module of this package whose name has no leading underscore is a subcommand.

A subcommand's module defines ``register(commands)``, which adds its parser and sets ``run``, a function from the parsed
arguments and a progress callback to an :class:`~opbridge.cli._outcome.Outcome`; ``GROUP``, where the help lists it; and
``EXAMPLE``, the command line that ends its help.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import itertools
import json
import pkgutil
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from opbridge.cli._options import GROUPS, Commands
from opbridge.cli._outcome import run_command
from opbridge.version import __version__

__all__ = ["build_parser", "main"]


_EXIT_CODES = "Exit codes: 0 success, 1 a problem in the model or the input, 2 wrong usage."


class _UsageError(Exception):
    """Raised with argparse's message if the arguments are invalid."""


class _Parser(argparse.ArgumentParser):
    commands: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        asked = re.search("invalid choice: '([^']*)'", message) if self.commands else None
        if asked:
            close = difflib.get_close_matches(asked[1], self.commands, n=1)
            hint = f"did you mean {close[0]}?" if close else "opbridge --help lists the commands."
            raise _UsageError(f"there is no command {asked[1]!r}; {hint}")
        raise _UsageError(f"{self.prog}: {message}")


def build_parser(*, help: str = argparse.SUPPRESS) -> argparse.ArgumentParser:
    """The parser of the whole command line.

    Args:
        help: The help of COMMAND; by default it is not listed, because the groups of commands are.
    """
    parser = _Parser(
        prog="opbridge",
        usage="opbridge COMMAND ... (opbridge COMMAND --help shows its options)",
        description="Run PyTorch models on inference engines that lack their operators, verified against PyTorch.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"opbridge {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="opbridge", help=help)
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{info.name}")
            module.register(_Listed(subparsers, groups[module.GROUP], module.EXAMPLE))
    parser.commands = tuple(name for group in groups.values() for name, _ in group)
    parser.epilog = "\n\n".join([*map(_group, groups.items()), _EXIT_CODES])
    return parser


class _Listed:
    """The subparsers, a list of the added ones with their help, and the example that ends the help of the next one."""

    def __init__(self, subparsers: Commands, added: list[tuple[str, str]], example: str) -> None:
        self._subparsers = subparsers
        self._added = added
        self._example = example

    def add_parser(self, name: str, *, help: str, **options: Any) -> Any:
        self._added.append((name, help))
        return self._subparsers.add_parser(name, help=help, epilog=f"Example: {self._example}", **options)


def _group(item: tuple[str, list[tuple[str, str]]]) -> str:
    """One group in the help."""
    title, commands = item
    width = max(40, shutil.get_terminal_size().columns - 2)
    lines = (
        textwrap.wrap(help, width, initial_indent=f"  {name:<15} ", subsequent_indent=18 * " ")
        for name, help in commands
    )
    return "\n".join([f"{title}:", *itertools.chain.from_iterable(lines)])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 for success, 1 for a problem in the user's model or input, 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        build_parser().print_help()
        return 0
    try:
        arguments = build_parser().parse_args(argv)
    except _UsageError as error:
        with contextlib.suppress(OSError):  # The exit code says it too.
            print(f"error: {error}", file=sys.stderr)
        if "--json" in argv:
            print(json.dumps({"error": "UsageError", "message": str(error), "fix": "see --help."}))
        return 2
    return run_command(arguments)
