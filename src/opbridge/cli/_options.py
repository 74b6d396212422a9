"""The options that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opbridge.cli._outcome import Outcome

__all__ = ["ENTRY_HELP", "Commands", "add_command", "add_engine", "add_model_options", "add_ops"]

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


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add ENTRY and what diagnose and export both take."""
    parser.add_argument("entry", metavar="ENTRY", help=ENTRY_HELP)
    add_engine(parser, default="onnxruntime")
    parser.add_argument(
        "--opset", type=int, metavar="N", help="the ONNX opset, 11 or newer (default: the lowest that serves all)"
    )
    add_ops(parser)


def add_ops(parser: argparse.ArgumentParser) -> None:
    """Add ``--ops``."""
    parser.add_argument(
        "--ops", action="append", default=[], metavar="DIR", help="a folder or file with operators of your own"
    )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("no engine named")
    return names
