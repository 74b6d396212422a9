"""``opbridge ops``: list the catalog of operators, or show one operator."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import OPERATORS, Commands, add_command, add_ops
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OPERATORS
EXAMPLE = "opbridge ops aten::cummax"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "ops", _run, help="list the operators of the catalog, or show one in detail")
    parser.add_argument("target", nargs="?", metavar="TARGET", help="an operator, such as aten::cummax")
    add_ops(parser)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.catalog.declare.lookup import list_mappings, look_up
    from opbridge.report.operators import catalog_view, operator_view

    progress("reading the catalog")
    if arguments.target is None:
        mappings = list_mappings(tuple(arguments.ops))
        return Outcome({"operators": [mapping.to_dict() for mapping in mappings]}, catalog_view)
    return Outcome(look_up(arguments.target, tuple(arguments.ops)).to_dict(), operator_view)
