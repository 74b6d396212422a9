"""The command line: every module of this package whose name has no leading underscore is a subcommand.

A subcommand's module defines ``register(commands)``, which adds its parser and sets ``run``, a function from the parsed
arguments and a progress callback to an :class:`~opbridge.cli._outcome.Outcome`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from opbridge.cli._outcome import run_command
from opbridge.version import __version__

__all__ = ["build_parser", "main"]


class _UsageError(Exception):
    """Raised with argparse's message if the arguments are invalid."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise _UsageError(f"{self.prog}: {message}")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="opbridge",
        description="Run PyTorch models on inference engines that lack their operators, proved equal to PyTorch.",
        epilog="Exit codes: 0 fine, 1 a problem in the model or the input, 2 wrong usage.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"opbridge {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}").register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 for success, 1 for a problem in the user's model or input, 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        arguments = build_parser().parse_args(argv)
    except _UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        if "--json" in argv:
            print(json.dumps({"error": "UsageError", "message": str(error), "fix": "see --help."}))
        return 2
    return run_command(arguments)
