"""Options shared by several subcommands."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opbridge.engines.process.limits import parse_size

if TYPE_CHECKING:
    from opbridge.cli._outcome import Outcome

__all__ = [
    "ENTRY_HELP",
    "ENVIRONMENT",
    "GROUPS",
    "MODELS",
    "OLD_CODE",
    "ONNX",
    "OPERATORS",
    "PROOF",
    "Commands",
    "add_bisection",
    "add_command",
    "add_engine",
    "add_inputs",
    "add_limits",
    "add_model_options",
    "add_ops",
    "add_trust",
    "add_verbose",
    "size",
    "words",
]

Commands = Any  # The type that add_subparsers returns has no public name in argparse.

MODELS = "Export and run models"
PROOF = "Verify, measure and report"
ONNX = "Edit ONNX models"
OLD_CODE = "Run and convert old export scripts"
OPERATORS = "Write and check operators"
ENVIRONMENT = "Environment"
GROUPS = (MODELS, PROOF, ONNX, OLD_CODE, OPERATORS, ENVIRONMENT)
"""The groups in which the help lists the subcommands. The module of a subcommand names its own as ``GROUP``."""

ENTRY_HELP = "the model: file.py:function, package.module:function, or a .pt2 or .onnx file"


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace, Callable[[str], None]], Outcome], *, help: str
) -> argparse.ArgumentParser:
    """Add a subcommand with the options that all subcommands have."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=textwrap.fill(f"{help[0].upper()}{help[1:]}.", 78),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, defaults={})
    parser.add_argument("--json", action="store_true", help="print the result as JSON instead of tables")
    parser.add_argument("-q", "--quiet", action="store_true", help="do not show progress")
    parser.add_argument(
        "--log-file", metavar="FILE", help="append what libraries print, and details of errors, to FILE"
    )
    return parser


def add_verbose(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--verbose``."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help=f"{help}; -vv: also what libraries print")


def add_engine(
    parser: argparse.ArgumentParser,
    *,
    default: str | None,
    several: bool = True,
    none: bool = False,
    shown: str = "the bundle's",
) -> None:
    """Add ``--engine``: one name, or several separated by commas. ``none``: whether the help names that choice."""
    shown = default or shown
    unknown = "; none: write a model for an engine that opbridge does not know, and run nothing" if none else ""
    if several:
        parser.add_argument(
            "--engine",
            dest="engines",
            type=words,
            metavar="E[,E2]",
            help=f"the engines, separated by commas; NAME==VERSION runs that version in its own environment{unknown} "
            f"(default: {shown})",
        )
    else:
        parser.add_argument("--engine", metavar="E", help=f"the engine (default: {shown})")
    if default:
        _set_default(parser, "engines" if several else "engine", (default,) if several else default)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add ``--time-limit`` and ``--memory-limit``, which apply to every engine that the subcommand starts."""
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        metavar="SECONDS",
        help="the time limit of loading a model in an engine and of each run; inf for no limit (default: 600)",
    )
    parser.add_argument(
        "--memory-limit",
        type=size,
        metavar="SIZE",
        help="the memory limit of an engine's process, such as 4GiB (default: no limit)",
    )


def add_bisection(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-bisect`` and ``--trace``."""
    parser.add_argument(
        "--no-bisect",
        dest="bisect",
        action="store_false",
        help="don't look for the first mismatching node after a failure",
    )
    parser.add_argument("--trace", action="store_true", help="also compare intermediate values, for the error by depth")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add ENTRY and the options that diagnose and export share."""
    parser.add_argument("entry", metavar="ENTRY", help=ENTRY_HELP)
    add_engine(parser, default="onnxruntime", none=True)
    parser.add_argument(
        "--opset",
        type=_opset,
        metavar="N|lowest",
        help="the ONNX opset, 11 or newer (default: the lowest that supports all operators and the faster ones that "
        "the engine's versions of the last two years take; lowest: without those)",
    )
    add_ops(parser)
    _set_default(parser, "opset", None)
    _set_default(parser, "ops", [])


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options for the inputs of a verification."""
    parser.add_argument(
        "--inputs",
        nargs="+",
        metavar="FILE.npz|DIR",
        help="inputs by name, one file per case, or folders of such files (default: random inputs)",
    )
    parser.add_argument("--edge-sizes", action="store_true", help="also test dynamic dimensions at sizes 0 and 1")
    parser.add_argument(
        "--special-values",
        nargs="?",
        const="report",
        choices=("report", "require"),
        help="also test NaN, infinities, -0, subnormal and extreme numbers; report (default): list differences; "
        "require: fail on them",
    )
    parser.add_argument(
        "--shrink",
        nargs="?",
        const=30.0,
        type=float,
        metavar="SECONDS",
        help="shrink the first failing input and store it in the bundle (SECONDS: 30 by default)",
    )


def add_ops(parser: argparse.ArgumentParser) -> None:
    """Add ``--ops``."""
    parser.add_argument(
        "--ops", action="append", default=[], metavar="PATH", help="a file or folder with custom operators (repeatable)"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust`` and ``--signed-by``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--trust",
        action="store_true",
        help="run code of a bundle that was not exported here (kernels, saved programs, entries)",
    )
    group.add_argument(
        "--signed-by",
        dest="trust",
        metavar="PUBLIC.pem",
        help="the same, but only if the bundle is signed with this key",
    )
    parser.set_defaults(trust=False)


def _set_default(parser: argparse.ArgumentParser, option: str, value: Any) -> None:
    """Set the default of an option that pyproject.toml can set too."""
    parser.get_default("defaults")[option] = value


def _opset(text: str) -> int | str:
    if text == "lowest":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither an integer nor lowest") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def size(text: str) -> int:
    """A number of bytes, as the type of an option."""
    try:
        count = parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if count == 0:
        raise argparse.ArgumentTypeError("a limit of 0 bytes leaves no memory")
    return count


def words(text: str) -> tuple[str, ...]:
    """Names separated by commas, as the type of an option."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("expected at least one name")
    return names
