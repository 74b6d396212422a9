"""``opbridge new-op``: write the files of a new operator."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import OPERATORS, Commands, add_command
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OPERATORS
EXAMPLE = "opbridge new-op mylib::my_op --kernel -o build/my_op"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "new-op", _run, help="create the files of a new operator")
    parser.add_argument("name", metavar="NAME", help="the operator: namespace::name")
    parser.add_argument("--kernel", action="store_true", help="also create a C++ kernel")
    parser.add_argument("-o", "--output", default=".", metavar="DIR", help="the folder (default: the current one)")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.catalog.declare.scaffold import new_operator
    from opbridge.report.scaffold import scaffold_view

    scaffold = new_operator(arguments.name, arguments.output, kernel=arguments.kernel)
    return Outcome(scaffold.to_dict(), scaffold_view)
