"""``opbridge set-dimension``: make dimensions of inputs dynamic or static."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from opbridge.cli._options import ONNX, Commands, add_engine
from opbridge.cli._outcome import Outcome
from opbridge.cli._surgery import add_surgery, written
from opbridge.errors import InputError

__all__ = ["EXAMPLE", "GROUP", "register"]

GROUP = ONNX
EXAMPLE = "opbridge set-dimension build/vit/model.onnx x:0=batch -o build/batch.onnx"


def register(commands: Commands) -> None:
    """Add the subcommand."""
    parser = add_surgery(commands, "set-dimension", _run, help="make dimensions of inputs dynamic or static")
    parser.add_argument(
        "sizes",
        nargs="+",
        metavar="INPUT:AXIS=SIZE",
        help="an input dimension with a name (x:0=batch) or a size (x:0=8)",
    )
    add_engine(parser, default="onnxruntime", several=False)


def _run(arguments: argparse.Namespace, progress: Callable[[str], None]) -> Outcome:
    from opbridge.surgery.verbs.set_dimensions import set_dimensions

    sizes: dict[str, dict[int, int | str]] = {}
    for text in arguments.sizes:
        name, axis, size = _parsed(text)
        sizes.setdefault(name, {})[axis] = size
    return written(arguments, progress, lambda: set_dimensions(arguments.model, sizes, engine=arguments.engine))


def _parsed(text: str) -> tuple[str, int, int | str]:
    place, _, size = text.rpartition("=")
    name, _, axis = place.rpartition(":")
    if not name or not axis.lstrip("-").isdigit() or not size:
        raise InputError(f"{text!r} is not of the form INPUT:AXIS=SIZE.", fix="write, for example, x:0=batch.")
    return name, int(axis), int(size) if size.lstrip("-").isdigit() else size
