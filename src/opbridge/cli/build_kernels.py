"""``opbridge build-kernels``: compile kernels into libraries that any program can register."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import OPERATORS, Commands, add_command, add_engine
from opbridge.cli._outcome import Outcome

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = OPERATORS
EXAMPLE = "opbridge build-kernels vision -o build/libopbridge_vision"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_command(commands, "build-kernels", _run, help="compile kernels into libraries for C++ programs")
    parser.add_argument(
        "sources", nargs="+", metavar="FILE", help="a file that declares kernels; vision: those of opbridge.vision"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the new folder of the libraries")
    add_engine(parser, default="onnxruntime")


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.bundle.kernel_libraries import build_libraries
    from opbridge.report.scaffold import scaffold_view

    progress("building kernels")
    made = build_libraries(arguments.sources, arguments.output, engines=arguments.engines or ("onnxruntime",))
    return Outcome(made.to_dict(), scaffold_view)
