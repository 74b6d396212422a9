"""``opbridge new-app``: write a C++ program that runs a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import MODELS, Commands, add_command, add_engine, add_trust
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = MODELS
EXAMPLE = "opbridge new-app build/head -o build/app"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "new-app", _run, help="write a C++ program that runs a bundle")
    parser.add_argument("bundle", metavar="DIR", help="the bundle")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the new folder of the program")
    add_engine(parser, default=None, several=False, shown="the bundle's first that has one")
    add_trust(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.bundle.new_app import new_app
    from opbridge.report.scaffold import scaffold_view

    app = new_app(arguments.bundle, arguments.output, engine=arguments.engine, trust=arguments.trust)
    return Outcome(app.to_dict(), scaffold_view)
