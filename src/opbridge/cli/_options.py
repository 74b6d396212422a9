"""The options that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opbridge.engines.process.limits import parse_size

if TYPE_CHECKING:
    from opbridge.cli._outcome import Outcome

__all__ = [
    "ENTRY_HELP",
    "Commands",
    "add_bisection",
    "add_command",
    "add_engine",
    "add_inputs",
    "add_limits",
    "add_model_options",
    "add_ops",
]

Commands = Any  # argparse has no public name for what add_subparsers returns.

ENTRY_HELP = "the model: file.py:function or package.module:function, a model.pt2 or a model.onnx file"


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace, Callable[[str], None]], Outcome], *, help: str
) -> argparse.ArgumentParser:
    """Add a subcommand with the options that all have."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    return parser


def add_engine(
    parser: argparse.ArgumentParser, *, default: str | None, several: bool = True, shown: str = "the bundle's"
) -> None:
    """Add ``--engine``: one name, or several separated by commas."""
    shown = default or shown
    if several:
        parser.add_argument(
            "--engine",
            dest="engines",
            type=_names,
            default=(default,) if default else None,
            metavar="E[,E2]",
            help=f"the engines; NAME==VERSION for one in an environment of its own (default: {shown})",
        )
    else:
        parser.add_argument("--engine", default=default, metavar="E", help=f"the engine (default: {shown})")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add ``--time-limit`` and ``--memory-limit``, which hold for every engine that the subcommand starts."""
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="SECONDS",
        help="what loading a model in an engine, and each of its runs, may take; inf for no limit (default: 600)",
    )
    parser.add_argument(
        "--memory-limit",
        type=_size,
        metavar="SIZE",
        help="the memory that an engine's process may take, such as 4GiB (default: no limit)",
    )


def add_bisection(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-bisect`` and ``--trace``."""
    parser.add_argument(
        "--no-bisect",
        dest="bisect",
        action="store_false",
        help="where an engine computes something else, don't look for the node at which it departs",
    )
    parser.add_argument(
        "--trace", action="store_true", help="compare the values inside the model too: the error against the depth"
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add ENTRY and what diagnose and export both take."""
    parser.add_argument("entry", metavar="ENTRY", help=ENTRY_HELP)
    add_engine(parser, default="onnxruntime")
    parser.add_argument(
        "--opset", type=int, metavar="N", help="the ONNX opset, 11 or newer (default: the lowest that serves all)"
    )
    add_ops(parser)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that say on which inputs a verification runs."""
    parser.add_argument(
        "--inputs",
        nargs="+",
        metavar="FILE.npz|DIR",
        help="inputs by name, one file per case, or folders of such files (default: made by --seed)",
    )
    parser.add_argument("--edge-sizes", action="store_true", help="try dynamic dimensions at 0 and at 1 too")
    parser.add_argument(
        "--special-values",
        nargs="?",
        const="report",
        choices=("report", "require"),
        help="compare what NaN, infinities, -0, subnormal and extreme numbers become too, or require it to be the same",
    )
    parser.add_argument(
        "--shrink",
        nargs="?",
        const=30.0,
        type=float,
        metavar="SECONDS",
        help="make the first input that fails a small one, and keep it in the bundle (default of SECONDS: 30)",
    )


def add_ops(parser: argparse.ArgumentParser) -> None:
    """Add ``--ops``."""
    parser.add_argument(
        "--ops", action="append", default=[], metavar="DIR", help="a folder or file with operators of your own"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _size(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size == 0:
        raise argparse.ArgumentTypeError("a limit of 0 bytes leaves no memory")
    return size


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("no engine named")
    return names
