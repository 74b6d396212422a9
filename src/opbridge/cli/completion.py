"""``opbridge completion``: print a script that completes command lines in a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opbridge import engines
from opbridge.cli._options import ENVIRONMENT, Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ENVIRONMENT
EXAMPLE = "opbridge completion bash"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "completion", _run, help="print a script that completes command lines in a shell")
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.cli import build_parser

    try:
        import shtab
    except ModuleNotFoundError as error:
        raise InputError(
            "completion needs the Python package shtab, which is not installed here.", fix="pip install shtab"
        ) from error
    parser = build_parser(help="")
    _complete_values(parser, shtab.FILE)
    return Outcome({"shell": arguments.shell, "script": shtab.complete(parser, arguments.shell)}, _printed)


def _complete_values(parser: argparse.ArgumentParser, file: Any) -> None:
    """Complete the names of engines, and the names of files for every other text without choices."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for subparser in action.choices.values():
                _complete_values(subparser, file)
        elif action.dest in ("engine", "engines"):
            action.choices = engines.names()
        elif action.nargs != 0 and action.choices is None and action.type is None:
            action.complete = file  # type: ignore[attr-defined]


def _printed(data: Mapping[str, Any]) -> Iterable[Any]:
    """Print the script as it is: a table would wrap its lines."""
    sys.stdout.write(data["script"])
    return ()
