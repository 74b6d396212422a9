"""``opbridge test-op``: check the operators of a file in PyTorch and in engines."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from opbridge.cli._options import OPERATORS, Commands, add_command, add_engine, add_verbose
from opbridge.cli._outcome import Outcome
from opbridge.verbs.operator_check import check_operators

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OPERATORS
EXAMPLE = "opbridge test-op build/my_op/my_op.py"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "test-op", _run, help="check the operators of a file on their samples")
    parser.add_argument("file", metavar="FILE", help="the Python file that declares the operators")
    add_engine(parser, default=None, shown="onnxruntime")
    add_verbose(parser, "list every sample")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.report.operator_check import operator_check_view

    found = check_operators(arguments.file, engines=arguments.engines, progress=progress)
    logs = [f"{r.target} {r.sample} {r.check}\n{r.log}" for r in found.results if r.log and r.status == "failed"]
    view = functools.partial(operator_check_view, verbose=arguments.verbose > 0)
    return Outcome(found.to_dict(), view, exit_code=0 if found.passed else 1, details="\n\n".join(logs))
