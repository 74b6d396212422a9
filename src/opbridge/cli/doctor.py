"""``opbridge doctor``: list installed and missing components, with the command that installs each."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ENVIRONMENT, Commands, add_command
from opbridge.cli._outcome import Outcome
from opbridge.report.environment import environment_view
from opbridge.verbs.doctor import examine

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ENVIRONMENT
EXAMPLE = "opbridge doctor"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    add_command(
        commands, "doctor", _run, help="list installed and missing components, with the command that installs each"
    )


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    progress("importing what is installed, each package once")
    environment = examine()
    return Outcome(environment.to_dict(), environment_view, exit_code=0 if environment.ok else 1)
